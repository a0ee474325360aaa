import type { Cidr } from "../../../lib/net/cidr.ts";
import type { IpAddress } from "../../../lib/net/ip_address.ts";
import type { Clock } from "../../../lib/os/clock.ts";
import { CommandError, type CommandRunner } from "../../../lib/os/command_runner.ts";
import type { Network } from "../../../lib/os/network.ts";
import { destroySets } from "../ipset/destroy_sets.ts";
import { findDummyDevices, IPVS_DEVICE } from "../../iproute/dummy_devices.ts";
import { inSteps } from "../in_steps.ts";
import { IpRunner } from "../../iproute/ip_runner.ts";
import { listSets, readSets } from "../ipset/ipset_runner.ts";
import { isKubeProxySet, notedServers } from "./ip_sets.ts";
import type { OwnState } from "./own_state.ts";
import type { RemovalRun } from "./removal_run.ts";
import { readProcFile } from "../probe/try_tool.ts";
import {
  describeServer,
  IP_VS_FILE,
  isKubeProxyServer,
  readVirtualServers,
  renderServerDeletion,
  type VirtualServer,
} from "./virtual_servers.ts";

interface IpvsRemovalEdges {
  readonly commands: CommandRunner;
  readonly clock: Clock;
  readonly network: Network;
}

interface IpvsRemovalInput {
  readonly own: OwnState;
  readonly run: RemovalRun;
  readonly excludeCidrs: readonly Cidr[];
}

/** Longest list of virtual servers that a report spells out. */
const MAX_NAMED_SERVERS = 20;

/**
 * Removes sets, virtual servers and the device, in this order; the rules that refer to the sets have to
 * be gone. Virtual servers of other programs stay, where upstream's `--cleanup` flushes them all. The
 * module ip_vs is not loaded for it: without it there are no virtual servers.
 */
export async function removeIpvs(edges: IpvsRemovalEdges, input: IpvsRemovalInput): Promise<void> {
  const { run, own } = input;
  // Read before the removal: sets and device identify the owner of virtual servers.
  const servers = await findServers(edges, input);
  await removeSets(edges, input);
  await removeServers(edges, { run, servers });
  if (own.device?.(IPVS_DEVICE)) return;
  const devices = await findDummyDevices(edges.commands, run.signal);
  if (devices.state === "refused") run.unseen(`device ${IPVS_DEVICE}`, devices.reason);
  if (devices.state !== "seen" || !devices.value.includes(IPVS_DEVICE)) return;
  await run.do(`device ${IPVS_DEVICE}`, {
    command: ["ip", "link", "del", IPVS_DEVICE],
    removes: [`device ${IPVS_DEVICE} with its addresses`],
  });
}

async function findServers(
  { commands, clock, network }: IpvsRemovalEdges,
  { own, run, excludeCidrs }: IpvsRemovalInput,
): Promise<readonly VirtualServer[]> {
  if (own.device?.(IPVS_DEVICE)) return [];
  const table = await readProcFile(commands, IP_VS_FILE, run.signal);
  if (table.state === "refused") run.unseen("virtual servers", table.reason);
  if (table.state !== "seen") return [];
  const all = await inSteps({ clock }, readVirtualServers(table.value));
  if (all.length === 0) return [];
  const sets = await readSets({ clock, commands }, { isWanted: isKubeProxySet, ...run.signal });
  const ownership = {
    noted: await inSteps({ clock }, notedServers(sets.state === "seen" ? sets.value : new Map())),
    deviceAddresses: await findDeviceAddresses(new IpRunner(commands, run.signal)),
    nodeAddresses: new Set(network.interfaceAddresses().map(({ address }) => address)),
    excludeCidrs,
  };
  return all.filter((server) => isKubeProxyServer(server, ownership));
}

/** Returns no addresses if the device does not exist or cannot be read. */
async function findDeviceAddresses(ip: IpRunner): Promise<ReadonlySet<IpAddress>> {
  try {
    return new Set((await ip.addresses(IPVS_DEVICE))?.map(({ address }) => address));
  } catch (error) {
    if (error instanceof CommandError && error.kind !== "aborted") return new Set();
    throw error;
  }
}

async function removeSets(
  { commands }: Pick<IpvsRemovalEdges, "commands">,
  { own, run }: IpvsRemovalInput,
): Promise<void> {
  const seen = await listSets(commands, run.signal);
  if (seen.state === "refused") run.unseen("ipsets", seen.reason);
  if (seen.state !== "seen") return;
  await destroySets(run, seen.value.filter((name) => isKubeProxySet(name) && !own.set?.(name)));
}

async function removeServers(
  { commands, clock }: IpvsRemovalEdges,
  { run, servers }: { readonly run: RemovalRun; readonly servers: readonly VirtualServer[] },
): Promise<void> {
  if (servers.length === 0) return;
  const removes = servers.length > MAX_NAMED_SERVERS
    ? [`${servers.length} virtual servers`]
    : servers.map((server) => `virtual server ${describeServer(server)}`);
  const reason = await run.try({
    command: ["ipvsadm", "-R"],
    input: () => renderServerDeletion(servers),
    removes,
  });
  if (run.dryRun) return;
  // The exit code is that of the last line only, so the result is verified by reading.
  const table = await readProcFile(commands, IP_VS_FILE, run.signal);
  const left = table.state === "seen"
    ? await inSteps({ clock }, readVirtualServers(table.value))
    : [];
  const still = new Set(left.map(describeServer));
  const remaining = servers.filter((server) => still.has(describeServer(server)));
  if (remaining.length === 0) return;
  const some = remaining.slice(0, MAX_NAMED_SERVERS).map(describeServer).join(", ");
  run.fail(`${remaining.length} virtual servers (${some}): ${reason ?? "they are still there"}`);
}
