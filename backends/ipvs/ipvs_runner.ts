import { type IpAddress, type IpFamily, tryParseIpAddress } from "../../lib/net/ip_address.ts";
import type { Clock } from "../../lib/os/clock.ts";
import type { CommandRunner } from "../../lib/os/command_runner.ts";
import type { ServerRates } from "../../lib/proxy/service_mode.ts";
import { findDummyDevices, IPVS_DEVICE } from "../iproute/dummy_devices.ts";
import { addDummyLine, IpRunner } from "../iproute/ip_runner.ts";
import { PodTunnels } from "../iproute/pod_tunnels.ts";
import { inSteps } from "../netfilter/in_steps.ts";
import { readProcFile, reasonOfExit } from "../netfilter/probe/try_tool.ts";
import { restoreLines } from "../netfilter/iptables/iptables_objects.ts";
import type { IptablesRunner } from "../netfilter/iptables/iptables_runner.ts";
import type { SavedTables } from "../netfilter/iptables/iptables_save.ts";
import { readSets, restoreSets } from "../netfilter/ipset/ipset_runner.ts";
import type { SavedSet } from "../netfilter/ipset/ipset_text.ts";
import { runBatch } from "../netfilter/tool_batch.ts";
import {
  IP_VS_FILE,
  type NotedServers,
  notedServers,
  readVirtualServers,
  type SeenServer,
  type ServerKey,
  serverKey,
} from "../netfilter/virtual_servers.ts";
import { parseProtocol } from "../../lib/net/port.ts";

/**
 * Input for one process: `ipset restore` and `ip -batch -` stop at the first line that fails,
 * `iptables-restore --noflush` takes each table as a whole or not at all. `ipvsadm -R` continues after
 * a failure and may not report it: only reading back shows what it did. `pods` is for
 * {@linkcode PodTunnels.run}.
 */
export interface IpvsStep {
  readonly tool: "ip" | "ipset" | "iptables" | "ipvsadm" | "pods";
  readonly lines: readonly string[];
}

/** The state of the kernel, including foreign objects. */
export interface KernelReading {
  readonly servers: readonly SeenServer[];
  /** Addresses on the device; `undefined` = there is no device. */
  readonly device: ReadonlySet<IpAddress> | undefined;
  readonly sets: ReadonlyMap<string, SavedSet>;
  /** The owners of virtual servers by the sets. */
  readonly noted: NotedServers;
  readonly tables: SavedTables;
}

/** 10,000 Services take `ipvsadm` some seconds. */
const TIMEOUT_MS = 120_000;

const SCRATCH_CHAIN = "KUBE-RELAY-DSR-PROBE";

/** Sets of this mode and of kube-proxy, and the leftovers of a killed run. */
const isWanted = (name: string) => /^(NEW-)?KUBE-/.test(name);

/** The tools. Every method throws an Error with the failed tool and its message. */
export class IpvsRunner {
  readonly #clock: Pick<Clock, "now" | "nextTurn">;
  readonly #commands: CommandRunner;
  readonly #iptables: IptablesRunner;
  readonly #ip: IpRunner;
  readonly pods: PodTunnels;
  /** Whether the device was found to be of the right kind. */
  #isDummy = false;

  constructor(
    clock: Pick<Clock, "now" | "nextTurn">,
    commands: CommandRunner,
    iptables: IptablesRunner,
    family: IpFamily,
  ) {
    this.#clock = clock;
    this.#commands = commands;
    this.#iptables = iptables;
    this.#ip = new IpRunner(commands, { timeoutMs: TIMEOUT_MS });
    this.pods = new PodTunnels(commands, family);
  }

  /**
   * Carries out a step. After a failure it is unknown how much of it was. Throws a BatchRefusal, an
   * IptablesError or a PodFailure, where it was the input that the tool did not take.
   */
  async run({ tool, lines }: IpvsStep): Promise<void> {
    switch (tool) {
      case "iptables":
        return await this.#iptables.restore({ lines });
      case "ipset":
        return await restoreSets(this.#commands, { lines, timeoutMs: TIMEOUT_MS });
      case "ip":
        return await this.#ip.run(lines);
      case "pods":
        return await this.pods.run(lines);
      case "ipvsadm":
        // Its exit code is that of its last line.
        return await runBatch(this.#commands, {
          ...{ command: ["ipvsadm", "-R"], lines, timeoutMs: TIMEOUT_MS },
          complainsOnly: true,
        });
    }
  }

  /** Whether the kernel takes rules of table mangle; throws an IptablesError where it doesn't. */
  async tryRules(rules: readonly string[]): Promise<void> {
    await this.#iptables.restore({
      lines: restoreLines([{ table: "mangle", chains: [{ name: SCRATCH_CHAIN, rules }] }]),
    });
    await this.#iptables.restore({
      lines: restoreLines([{ table: "mangle", removed: [SCRATCH_CHAIN] }]),
    });
  }

  /** Everything; `expected` as for {@linkcode IpvsRunner.servers}. */
  async read(expected: Iterable<ServerKey> = []): Promise<KernelReading> {
    const [clock, commands] = [this.#clock, this.#commands];
    const [servers, device, sets, tables] = await Promise.all([
      this.servers(expected),
      this.deviceAddresses(),
      readSets({ clock, commands }, { isWanted, timeoutMs: TIMEOUT_MS }),
      this.#iptables.save(),
    ]);
    if (sets.state !== "seen") throw new Error(`Cannot run 'ipset save': ${sets.reason}`);
    const noted = await inSteps({ clock }, notedServers(sets.value));
    return { servers, device, sets: sets.value, noted, tables };
  }

  /**
   * Returns all virtual servers. The kernel prints them in pages by position, so a removal by the
   * other IP family between two pages skips one. If an `expected` server is missing, they are read
   * again.
   */
  async servers(expected: Iterable<ServerKey> = []): Promise<readonly SeenServer[]> {
    const first = await this.#readServers();
    const there = new Map(first.map((server) => [server.key, server]));
    if ([...expected].every((key) => there.has(key))) return first;
    for (const server of await this.#readServers()) there.set(server.key, server);
    return [...there.values()];
  }

  async #readServers(): Promise<readonly SeenServer[]> {
    const seen = await readProcFile(this.#commands, IP_VS_FILE, { timeoutMs: TIMEOUT_MS });
    // The first user of ip_vs loads it.
    if (seen.state === "absent") return [];
    if (seen.state === "refused") throw new Error(`Cannot read virtual servers: ${seen.reason}`);
    return await inSteps({ clock: this.#clock }, readVirtualServers(seen.value));
  }

  /**
   * Returns the traffic of the virtual servers. No file contains it: this queries the kernel for
   * each server, and is for display only.
   */
  async rates(): Promise<ReadonlyMap<ServerKey, ServerRates>> {
    const text = await this.#output("-L", "-n", "--rate", "--exact");
    return await inSteps({ clock: this.#clock }, readServerRates(text));
  }

  /** Addresses on the device; `undefined` = there is none. */
  async deviceAddresses(): Promise<ReadonlySet<IpAddress> | undefined> {
    const found = await this.#ip.addresses(IPVS_DEVICE);
    return found && new Set(found.map(({ address }) => address));
  }

  /**
   * Makes the device, unless it exists: the other IP family may have made it a moment ago. Throws where a
   * device of another kind has its name: its addresses are foreign and stay.
   */
  async makeDevice(): Promise<void> {
    const result = await this.#commands.run("ip", addDummyLine(IPVS_DEVICE).split(" "));
    if (result.code !== 0 && !result.stderr.includes("File exists")) {
      throw new Error(`Cannot make device ${IPVS_DEVICE}: ${reasonOfExit("ip", result)}`);
    }
    if (result.code !== 0 && !this.#isDummy) {
      const dummies = await findDummyDevices(this.#commands);
      if (dummies.state !== "seen") {
        throw new Error(`Cannot look at device ${IPVS_DEVICE}: ${dummies.reason}`);
      }
      if (!dummies.value.includes(IPVS_DEVICE)) {
        throw new Error(
          `Cannot use device ${IPVS_DEVICE}: it exists and is not a dummy device; rename or remove it`,
        );
      }
    }
    this.#isDummy = true;
  }

  /** Sets time-outs of connections, milliseconds; 0 keeps the kernel's value. */
  async setTimeouts(tcp: number, tcpFin: number, udp: number): Promise<void> {
    if (tcp + tcpFin + udp === 0) return;
    const seconds = [tcp, tcpFin, udp].map((ms) => String(Math.ceil(ms / 1_000)));
    await this.#output("--set", ...seconds);
  }

  async #output(...args: readonly string[]): Promise<string> {
    const result = await this.#commands.run("ipvsadm", args, { timeoutMs: TIMEOUT_MS });
    if (result.code === 0) return result.stdout;
    const reason = reasonOfExit("ipvsadm", result);
    throw new Error(`Cannot run 'ipvsadm ${args.join(" ")}': ${reason}`);
  }
}

const SERVER = /^(TCP|UDP|SCTP)\s+(\S+):(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s*$/;

/** Reads it in short steps. Lines that make no sense, and those of real servers, are skipped. */
export function* readServerRates(
  text: string,
): Generator<void, ReadonlyMap<ServerKey, ServerRates>> {
  const rates = new Map<ServerKey, ServerRates>();
  for (const line of text.split("\n")) {
    yield;
    const [, name, host = "", port, ...numbers] = SERVER.exec(line) ?? [];
    const address = tryParseIpAddress(host.replace(/^\[(.*)\]$/, "$1"));
    if (name === undefined || address === undefined) continue;
    const protocol = parseProtocol(name);
    const [connections = 0, packetsIn = 0, packetsOut = 0, bytesIn = 0, bytesOut = 0] = numbers
      .map(Number);
    const key = serverKey({ protocol, address, port: Number(port) });
    rates.set(key, { connections, packetsIn, packetsOut, bytesIn, bytesOut });
  }
  return rates;
}
