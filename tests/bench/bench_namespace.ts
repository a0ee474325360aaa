/**
 * A network namespace of the benchmark, with an agent in it. Every address answers there: endpoints
 * are addresses of the namespace itself, and the rest leads nowhere but to the rules.
 *
 * @module
 */
import type { LineProcess } from "../support/drivers/line_process.ts";
import { Namespace } from "../support/stages/netns.ts";
import type { AgentAnswer, AgentRequest, ToolRun } from "./agent_protocol.ts";

/** A program that is given rules. */
export interface BenchTool {
  readonly program: string;
  /** Its arguments, to read the rules from a file. */
  args(path: string): readonly string[];
}

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

/**
 * Runs a Deno program in its own namespace, and returns its last line, which is JSON. Throws with
 * its output if it fails.
 */
export async function runInBenchNamespace<T>(file: string, args: readonly string[]): Promise<T> {
  await using namespace = await createBenchNamespace();
  const deno = ["run", "--quiet", "--no-prompt", "--no-check", "--unstable-net"];
  const rights = ["net", "read", "write", "env", "sys", "run", "ffi"];
  const line = [...deno, ...rights.map((right) => `--allow-${right}`), file, ...args];
  const { code, stdout, stderr } = await new Deno.Command("ip", {
    args: ["netns", "exec", namespace.name, Deno.execPath(), ...line],
  }).output();
  const text = new TextDecoder();
  if (code !== 0) throw new Error(`Cannot run ${file}: ${text.decode(stderr)}`);
  return JSON.parse(text.decode(stdout).trim().split("\n").at(-1) ?? "");
}

/** A namespace with its measurements. */
export class BenchNamespace implements AsyncDisposable {
  readonly namespace: Namespace;
  readonly #agent: LineProcess;
  readonly #folder: string;
  readonly #tool: BenchTool;

  private constructor(
    { namespace, agent, folder, tool }: {
      readonly namespace: Namespace;
      readonly agent: LineProcess;
      readonly folder: string;
      readonly tool: BenchTool;
    },
  ) {
    this.namespace = namespace;
    this.#agent = agent;
    this.#folder = folder;
    this.#tool = tool;
  }

  static async create(tool: BenchTool): Promise<BenchNamespace> {
    const namespace = await createBenchNamespace();
    const agent = namespace.startDeno(AGENT, [], { flags: [...AGENT_FLAGS, "--allow-ffi"] });
    try {
      await agent.nextLine();
    } catch (error) {
      await namespace[Symbol.asyncDispose]();
      throw error;
    }
    const folder = await Deno.makeTempDir({ prefix: "kube-relay-bench-" });
    return new BenchNamespace({ namespace, agent, folder, tool });
  }

  /** Gives a text to the tool. Throws when it refuses it. */
  async give(text: string | Iterable<string>): Promise<ToolRun> {
    // The tool reads the file by itself, so that this process has no part in the measurement.
    const path = `${this.#folder}/input`;
    const pieces = typeof text === "string" ? [text] : [...text];
    await Deno.writeTextFile(path, pieces.join(""));
    return await this.run(this.#tool.program, this.#tool.args(path));
  }

  /** Runs a program to its end and discards its output. Throws if it fails. */
  async run(program: string, args: readonly string[]): Promise<ToolRun> {
    const answer = await this.#ask({ kind: "run", program, args });
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

  /** Microseconds of each of many datagrams to an address. */
  async send(address: string, datagrams: number): Promise<number> {
    const answer = await this.#ask({ kind: "send", address, datagrams });
    if (answer.kind !== "sent") throw unexpected(answer);
    return answer.microsecondsEach;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.namespace[Symbol.asyncDispose]();
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
