/**
 * Dummy devices, on which ipvs modes put Service addresses.
 *
 * @module
 */
import type { CommandRunner } from "../../lib/os/command_runner.ts";
import { askTool, reasonOfExit, type Seen } from "../netfilter/probe/try_tool.ts";
import { addDummyLine } from "./ip_runner.ts";

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
  return seen.state === "seen" ? { ...seen, value: parseDeviceNames(seen.value) } : seen;
}

/** Reads `ip -o link show`: lines as `7: kube-ipvs0: <BROADCAST,NOARP> mtu 1500 …`. */
function parseDeviceNames(text: string): string[] {
  return [...text.matchAll(/^\d+: ([^:@\s]+)/gm)].map(([, name]) => name!);
}

/** A dummy device of kube-relay. */
export class DummyDevice {
  readonly #commands: CommandRunner;
  readonly #name: string;
  /** Whether the device was found to be of the right kind. */
  #isDummy = false;

  constructor(commands: CommandRunner, name: string) {
    this.#commands = commands;
    this.#name = name;
  }

  /** Creates it, unless it exists. Throws where a device of another kind has its name. */
  async make(): Promise<void> {
    const args = addDummyLine(this.#name).split(" ");
    const result = await this.#commands.run("ip", args);
    if (result.code !== 0 && !result.stderr.includes("File exists")) {
      throw new Error(`Cannot make device ${this.#name}: ${reasonOfExit("ip", result)}`);
    }
    if (result.code !== 0) await this.#check();
    this.#isDummy = true;
  }

  /** Addresses of a device of another kind are foreign and stay. */
  async #check(): Promise<void> {
    if (this.#isDummy) return;
    const dummies = await findDummyDevices(this.#commands);
    if (dummies.state !== "seen") {
      throw new Error(`Cannot look at device ${this.#name}: ${dummies.reason}`);
    }
    if (!dummies.value.includes(this.#name)) {
      throw new Error(
        `Cannot use device ${this.#name}: it exists and is not a dummy device; rename or remove it`,
      );
    }
  }
}
