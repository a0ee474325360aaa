/** A node in some mode, and `kube-relay trace` on it. */
import type { TraceReport } from "../../../lib/tools/trace/trace_report.ts";
import { permissionFlags } from "../../../lib/os/permissions.ts";
import { type CommandResult, systemCommandRunner } from "../../../lib/os/command_runner.ts";
import type { LineProcess } from "../drivers/line_process.ts";
import type { Namespace } from "./netns.ts";
import { programFile } from "../drivers/program_file.ts";
import type { RelayProcess } from "./relay_process.ts";
import { RelayScene } from "./relay_scene.ts";
import type { RuleMode } from "./rule_modes.ts";

const MAIN = programFile(new URL("../../../main.ts", import.meta.url));
const DENO_FLAGS = [...permissionFlags(), "--unstable-net", "--quiet", "--no-check"];

/** The result of a trace after its end. */
export interface TraceResult extends CommandResult {
  /** Present where it succeeded. */
  readonly report?: TraceReport;
}

/** Disposing of it ends and removes all. */
export class TraceStage implements AsyncDisposable {
  /** As it was before. */
  readonly #history = historyOfNft();

  private constructor(
    readonly scene: RelayScene,
    readonly relay: RelayProcess,
    readonly mode: RuleMode | undefined,
  ) {}

  /** Starts kube-relay on manifests that `write` has written; without a mode, in userspace. */
  static async start(
    mode: RuleMode | undefined,
    write: (scene: RelayScene) => Promise<void>,
  ): Promise<TraceStage> {
    const scene = await RelayScene.create();
    try {
      await mode?.prepare(scene.cluster.node);
      await write(scene);
      const relay = scene.start(mode?.args ?? ["--mode=userspace"]);
      await relay.settled();
      return new TraceStage(scene, relay, mode);
    } catch (error) {
      await scene[Symbol.asyncDispose]();
      throw error;
    }
  }

  get node(): Namespace {
    return this.scene.cluster.node;
  }

  /** Runs `kube-relay trace --json` to its end. */
  async trace(...args: readonly string[]): Promise<TraceResult> {
    const [program, ...line] = this.#line(args);
    const result = await this.node.run(program, line);
    return { ...result, ...(result.stdout !== "" && { report: JSON.parse(result.stdout) }) };
  }

  /** Starts `kube-relay trace --json`, perhaps `by` another program. */
  startTrace(args: readonly string[], by: readonly string[] = []): LineProcess {
    const [program, ...line] = [...by, ...this.#line(args)] as [string, ...string[]];
    return this.node.start(program, line);
  }

  /**
   * Returns everything that a trace may leave behind: tables, rules of both kinds, processes of the
   * namespace, and lines in the history of nft.
   */
  async leftovers(): Promise<readonly string[]> {
    // A kernel without nftables has no tables of it.
    const tables = (await this.node.run("nft", ["list", "tables"])).stdout.split("\n");
    const processes = (await this.node.output("ps", ["-eo", "pid=,stat=,args="])).split("\n");
    const here = new Set((await ownPids(this.node)).split(/\s+/));
    return [
      ...(historyOfNft() === this.#history ? [] : ["~/.nft.history"]),
      ...tables.filter((table) => table.includes("trace")),
      ...processes.filter((line) => {
        const [, pid, stat, args] = /^\s*(\d+) (\S+)\s+(.*)$/.exec(line) ?? [];
        // One that has ended is a zombie until its new parent has noticed.
        return here.has(pid ?? "") && !stat?.startsWith("Z") &&
          // A monitor is started by its name, or by a dynamic loader.
          /^(nft|setpriv) |\/nft -a /.test(args ?? "");
      }),
    ];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.relay.kill();
    await this.scene[Symbol.asyncDispose]();
  }

  #line(args: readonly string[]): [string, ...string[]] {
    const socket = `--control-socket=${this.scene.folder}/control.sock`;
    return [
      Deno.execPath(),
      ...["run", ...DENO_FLAGS, MAIN, "trace", "--json", socket, ...args],
    ];
  }
}

/** The processes of a namespace. */
async function ownPids({ name }: Namespace): Promise<string> {
  const { stdout } = await systemCommandRunner.run("ip", ["netns", "pids", name]);
  return stdout;
}

/** The size of what `nft -i` remembers for the user; 0 where it never ran. */
function historyOfNft(): number {
  try {
    return Deno.statSync(`${Deno.env.get("HOME")}/.nft.history`).size;
  } catch {
    return 0;
  }
}
