/**
 * Dummy devices, on which ipvs modes put Service addresses.
 *
 * @module
 */
import type { CommandRunner } from "../../lib/os/command_runner.ts";
import { askTool, type Seen } from "../netfilter/probe/try_tool.ts";

/** kube-proxy's. */
export const IPVS_DEVICE = "kube-ipvs0";
/** kube-router's. */
export const KUBE_ROUTER_DEVICE = "kube-dummy-if";

/** Lists all devices that are dummies, by name. A device of another kind by such a name is no leftover. */
export async function findDummyDevices(
  commands: CommandRunner,
  options: { readonly signal?: AbortSignal } = {},
): Promise<Seen<readonly string[]>> {
  const seen = await askTool(commands, ["ip", "-o", "link", "show", "type", "dummy"], options);
  if (seen.state !== "seen") return seen;
  // Lines as `7: kube-ipvs0: <BROADCAST,NOARP> mtu 1500 …`.
  const names = [...seen.value.matchAll(/^\d+: ([^:@\s]+)/gm)].map(([, name]) => name!);
  return { ...seen, value: names };
}
