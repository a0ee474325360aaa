/**
 * Runs the tools of the ipvs mode: gives them their input, and reads what the kernel holds.
 *
 * @module
 */
import { type IpAddress, tryParseIpAddress } from "../../lib/net/ip_address.ts";
import type { Clock } from "../../lib/os/clock.ts";
import type { CommandRunner } from "../../lib/os/command_runner.ts";
import type { ServerRates } from "../../lib/proxy/service_mode.ts";
import { findDummyDevices } from "../iproute/dummy_devices.ts";
import { inSteps } from "../netfilter/in_steps.ts";
import { type NotedServers, readNotedServers } from "../netfilter/foreign/ip_sets.ts";
import { readProcFile, reasonOfExit } from "../netfilter/foreign/tool_output.ts";
import type { IptablesRunner } from "../netfilter/iptables/iptables_runner.ts";
import type { SavedTables } from "../netfilter/iptables/iptables_save.ts";
import { saysNotPermitted } from "../netfilter/probe/try_tool.ts";
import { IptablesError } from "../netfilter/iptables/restore_error.ts";
import { DEVICE } from "./diff.ts";
import { readIpsetSave, type SavedSet } from "../netfilter/ipset/ipset_text.ts";
import { IP_VS_FILE, readProcIpVs, type SeenServer } from "./proc_ip_vs.ts";
import { readServerRates } from "./server_rates.ts";
import { StepRefusal } from "./step_refusal.ts";
import { type IpvsStep, stepText } from "./steps.ts";
import type { ServerKey } from "./virtual_server.ts";

/** The edges. */
interface IpvsRunnerDependencies {
  readonly clock: Pick<Clock, "now" | "yieldToEventLoop">;
  readonly commands: CommandRunner;
  readonly iptables: IptablesRunner;
}

/** Everything that the kernel holds, of us and of others. */
export interface KernelReading {
  readonly servers: readonly SeenServer[];
  /** Addresses on the device; `undefined` = there is no device. */
  readonly device: ReadonlySet<IpAddress> | undefined;
  readonly sets: ReadonlyMap<string, SavedSet>;
  /** What the sets say of whose a virtual server is. */
  readonly noted: NotedServers;
  readonly tables: SavedTables;
}

/** 10,000 Services take `ipvsadm` some seconds. */
const TIMEOUT_MS = 120_000;

/** What is true of the machine or of this process, whatever the line. */
const NOT_OF_A_LINE = /Can't initialize ipvs|Cannot open netlink|Cannot talk to/;

/** The tools. All methods throw an Error that says which tool failed, and in which words. */
export class IpvsRunner {
  readonly #dependencies: IpvsRunnerDependencies;
  /** Whether the device was found to be of the right kind. */
  #isDummy = false;

  constructor(dependencies: IpvsRunnerDependencies) {
    this.#dependencies = dependencies;
  }

  /**
   * Carries out a step. After a failure it is unknown how much of it was. Throws a StepRefusal where
   * it was the input that the tool did not take.
   */
  async run(step: IpvsStep): Promise<void> {
    switch (step.tool) {
      case "iptables":
        return await this.#restore(step);
      case "ipset":
        return await this.#give(["ipset", "restore"], step);
      case "ip":
        return await this.#give(["ip", "-batch", "-"], step);
      case "ipvsadm":
        return await this.#give(["ipvsadm", "-R"], step);
    }
  }

  /** Everything; `expected` as for {@linkcode IpvsRunner.servers}. */
  async read(expected: Iterable<ServerKey> = []): Promise<KernelReading> {
    const { clock, iptables } = this.#dependencies;
    const [servers, device, saved, tables] = await Promise.all([
      this.servers(expected),
      this.deviceAddresses(),
      this.#output(["ipset", "save"]),
      iptables.save(),
    ]);
    const isOurs = (name: string) => /^(NEW-)?KUBE-/.test(name);
    const sets = await inSteps({ clock }, readIpsetSave(saved, isOurs));
    const noted = await inSteps({ clock }, readNotedServers(saved));
    return { servers, device, sets, noted, tables };
  }

  /**
   * All virtual servers. The kernel prints them a page at a time, from a position on. So where the
   * other IP family removes one between two pages, another one is left out. Where one of `expected` is
   * missing, they are read once more.
   */
  async servers(expected: Iterable<ServerKey> = []): Promise<readonly SeenServer[]> {
    const first = await this.#readServers();
    const there = new Map(first.map((server) => [server.key, server]));
    if ([...expected].every((key) => there.has(key))) return first;
    for (const server of await this.#readServers()) there.set(server.key, server);
    return [...there.values()];
  }

  async #readServers(): Promise<readonly SeenServer[]> {
    const { clock, commands } = this.#dependencies;
    const seen = await readProcFile(commands, IP_VS_FILE, { timeoutMs: TIMEOUT_MS });
    // ip_vs is loaded by whoever needs it first.
    if (seen.state === "absent") return [];
    if (seen.state === "refused") throw new Error(`Cannot read virtual servers: ${seen.reason}`);
    return await inSteps({ clock }, readProcIpVs(seen.value));
  }

  /**
   * What goes through the virtual servers. No file of the kernel has it: this asks the kernel for
   * each server, and is for people.
   */
  async rates(): Promise<ReadonlyMap<ServerKey, ServerRates>> {
    const { clock } = this.#dependencies;
    const text = await this.#output(["ipvsadm", "-L", "-n", "--rate", "--exact"]);
    return await inSteps({ clock }, readServerRates(text));
  }

  /** Addresses on the device; `undefined` = there is none. */
  async deviceAddresses(): Promise<ReadonlySet<IpAddress> | undefined> {
    const { commands } = this.#dependencies;
    const args = ["-o", "addr", "show", "dev", DEVICE];
    const result = await commands.run("ip", args, { timeoutMs: TIMEOUT_MS });
    if (result.code !== 0 && result.stderr.includes("does not exist")) return undefined;
    if (result.code !== 0) {
      throw new Error(`Cannot read addresses of ${DEVICE}: ${reasonOfExit("ip", result)}`);
    }
    const found = new Set<IpAddress>();
    for (const [, text = ""] of result.stdout.matchAll(/ inet6? ([0-9a-f.:]+)/g)) {
      const address = tryParseIpAddress(text);
      if (address !== undefined) found.add(address);
    }
    return found;
  }

  /** Makes the device, unless it is there: the other IP family may have made it a moment ago. */
  async makeDevice(): Promise<void> {
    const args = ["link", "add", DEVICE, "type", "dummy"];
    const result = await this.#dependencies.commands.run("ip", args);
    if (result.code !== 0 && !result.stderr.includes("File exists")) {
      throw new Error(`Cannot make device ${DEVICE}: ${reasonOfExit("ip", result)}`);
    }
    if (result.code !== 0) await this.#checkDevice();
    this.#isDummy = true;
  }

  /** Addresses of a device of another kind are not ours to take away. Throws where it is one. */
  async #checkDevice(): Promise<void> {
    if (this.#isDummy) return;
    const dummies = await findDummyDevices(this.#dependencies.commands);
    if (dummies.state !== "seen") {
      throw new Error(`Cannot look at device ${DEVICE}: ${dummies.reason}`);
    }
    if (!dummies.value.includes(DEVICE)) {
      throw new Error(
        `Cannot use device ${DEVICE}: it is there already and no dummy device; rename or remove it`,
      );
    }
  }

  /** Sets time-outs of connections, seconds; 0 leaves what the kernel has. */
  async setTimeouts(seconds: readonly [tcp: number, tcpFin: number, udp: number]): Promise<void> {
    await this.#output(["ipvsadm", "--set", ...seconds.map(String)]);
  }

  async #restore(step: Extract<IpvsStep, { tool: "iptables" }>): Promise<void> {
    const { lines } = step;
    const input = { lines, ownerOf: () => undefined, text: () => stepText(step) };
    try {
      await this.#dependencies.iptables.restore(input);
    } catch (cause) {
      if (!(cause instanceof IptablesError) || cause.kind !== "refused") throw cause;
      const line = cause.line?.number;
      throw new StepRefusal(cause.message, { step, line, complaints: 1, cause });
    }
  }

  async #give(
    line: readonly [program: string, ...args: string[]],
    step: IpvsStep,
  ): Promise<void> {
    const [program, ...args] = line;
    const result = await this.#dependencies.commands.run(program, args, {
      timeoutMs: TIMEOUT_MS,
      stdin: stepText(step),
    });
    // The exit code of `ipvsadm -R` is that of its last line.
    const isRefused = program === "ipvsadm" && result.stderr.trim() !== "";
    if (result.code === 0 && !isRefused) return;
    const { stderr } = result;
    const at = lineOf(stderr, step);
    const where = at === undefined ? "" : `, line ${at.number} '${at.text}'`;
    const message = `Cannot run '${line.join(" ")}'${where}: ${reasonOfExit(program, result)}`;
    if (saysNotPermitted(stderr) || NOT_OF_A_LINE.test(stderr)) throw new Error(message);
    const complaints = stderr.split("\n").filter((each) => each.trim() !== "").length;
    throw new StepRefusal(message, { step, line: at?.number, complaints });
  }

  async #output([program, ...args]: readonly [string, ...string[]]): Promise<string> {
    const result = await this.#dependencies.commands.run(program, args, { timeoutMs: TIMEOUT_MS });
    if (result.code === 0) return result.stdout;
    const line = [program, ...args].join(" ");
    throw new Error(`Cannot run '${line}': ${reasonOfExit(program, result)}`);
  }
}

/** The line of the input that a tool complains of, where it says which. */
function lineOf(
  stderr: string,
  step: IpvsStep,
): { readonly number: number; readonly text: string } | undefined {
  const number = Number(/(?:line |failed -:)(\d+)/.exec(stderr)?.[1]);
  const text = step.tool === "ipvsadm" ? undefined : step.lines[number - 1];
  return text === undefined ? undefined : { number, text };
}
