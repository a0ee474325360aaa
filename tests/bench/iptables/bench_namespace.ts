/**
 * A network namespace of the benchmark, with an agent in it. Every address answers there: endpoints
 * are addresses of the namespace itself, and the rest leads nowhere but to the rules.
 *
 * @module
 */
import type { LineProcess } from "../../support/line_process.ts";
import { Namespace } from "../../support/netns.ts";
import type { AgentAnswer, AgentRequest, ToolRun } from "./agent_protocol.ts";

/** The two programs that are called `iptables`. */
export type IptablesVariant = "nft" | "legacy";

const AGENT = new URL("./agent.ts", import.meta.url);
const AGENT_FLAGS = ["--quiet", "--no-prompt", "--no-check", "--allow-net", "--allow-run"];

/** A namespace in which every address of the benchmark leads somewhere. */
export async function createBenchNamespace(): Promise<Namespace> {
  const namespace = await Namespace.create("bench");
  await namespace.ipBatch([
    "link add nowhere type veth peer name beyond",
    "addr add 10.0.0.1/32 dev nowhere",
    "link set nowhere up",
    "link set beyond up",
    "route add default dev nowhere",
    "route add local 10.0.0.0/9 dev lo",
  ]);
  return namespace;
}

/** A namespace and what can be measured in it. */
export class BenchNamespace implements AsyncDisposable {
  readonly #namespace: Namespace;
  readonly #agent: LineProcess;
  readonly #folder: string;
  readonly #variant: IptablesVariant;

  private constructor(
    { namespace, agent, folder, variant }: {
      readonly namespace: Namespace;
      readonly agent: LineProcess;
      readonly folder: string;
      readonly variant: IptablesVariant;
    },
  ) {
    this.#namespace = namespace;
    this.#agent = agent;
    this.#folder = folder;
    this.#variant = variant;
  }

  static async create(variant: IptablesVariant): Promise<BenchNamespace> {
    const namespace = await createBenchNamespace();
    const agent = namespace.startDeno(AGENT, [], { flags: [...AGENT_FLAGS, "--allow-ffi"] });
    await agent.nextLine();
    const folder = await Deno.makeTempDir({ prefix: "kube-relay-iptables-" });
    return new BenchNamespace({ namespace, agent, folder, variant });
  }

  /** Gives a text to `iptables-restore`. Throws when the tool refuses it. */
  async restore(text: string | Iterable<string>): Promise<ToolRun> {
    // The tool reads it by itself: nothing of ours takes part in what is measured.
    const path = `${this.#folder}/input`;
    const pieces = typeof text === "string" ? [text] : [...text];
    await Deno.writeTextFile(path, pieces.join(""));
    const answer = await this.#ask({
      kind: "run",
      program: `iptables-${this.#variant}-restore`,
      args: ["-w", "5", "--noflush", "--counters", path],
    });
    if (answer.kind !== "ran") throw unexpected(answer);
    return answer.run;
  }

  /** Microseconds of connections to each address, taken in turns. */
  async connect(
    addresses: readonly string[],
    rounds: number,
  ): Promise<Readonly<Record<string, readonly number[]>>> {
    const answer = await this.#ask({ kind: "connect", addresses, rounds });
    if (answer.kind !== "connected") throw unexpected(answer);
    return answer.times;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#namespace[Symbol.asyncDispose]();
    await Deno.remove(this.#folder, { recursive: true });
  }

  async #ask(request: AgentRequest): Promise<AgentAnswer> {
    await this.#agent.writeLine(JSON.stringify(request));
    for (;;) {
      const answer: AgentAnswer = JSON.parse(await this.#agent.nextLine());
      if (answer.kind !== "patience") return answer;
    }
  }
}

function unexpected(answer: AgentAnswer): Error {
  return new Error(answer.kind === "failed" ? answer.reason : `The agent answered ${answer.kind}`);
}
