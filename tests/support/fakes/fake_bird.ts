/**
 * A BIRD that only reads configurations: it answers on connections as the real one does on its control
 * socket, and knows constants, peers and announced prefixes of the file in force.
 *
 * @module
 */
import type { UnixConnection } from "../../../lib/os/network.ts";

/** How a command goes wrong. `carried out` ones do their work before they fail. */
export type BirdFailure = "closed" | "carried out, then closed" | "silent" | "garbage" | "refused";

/** The state that a test looks at. */
interface FakeConfiguration {
  readonly constants: ReadonlyMap<string, string>;
  readonly peers: readonly string[];
  readonly prefixes: readonly string[];
}

const NOTHING: FakeConfiguration = { constants: new Map(), peers: [], prefixes: [] };

/** A running BIRD, or one that does not run. */
export class FakeBird {
  /** The file that it was started with. */
  readonly file: string;
  isRunning = true;
  /** Every command so far. */
  readonly commands: string[] = [];
  /** Called when a command gets no answer. */
  onSilence?: () => void;
  /** Sessions that are not established, by the name of the protocol, with their last error. */
  readonly errors = new Map<string, string>();
  #inForce: FakeConfiguration = NOTHING;
  #before: FakeConfiguration = NOTHING;
  readonly #failures = new Map<number, BirdFailure>();

  constructor(file: string) {
    this.file = file;
  }

  get prefixes(): readonly string[] {
    return this.#inForce.prefixes;
  }

  get peers(): readonly string[] {
    return this.#inForce.peers;
  }

  /** Starts it, as its service does. */
  async start(): Promise<void> {
    this.#inForce = await readConfiguration(this.file);
    this.isRunning = true;
  }

  /** Makes the n-th command from now fail, counted from 1. */
  failAt(number: number, failure: BirdFailure): void {
    this.#failures.set(this.commands.length + number, failure);
  }

  /** Opens a connection to its control socket. */
  readonly connect = (): Promise<UnixConnection> => {
    if (!this.isRunning) return Promise.reject(new Deno.errors.ConnectionRefused("refused"));
    return Promise.resolve(new FakeConnection((command) => this.#answer(command)));
  };

  /** `undefined` = it closes the connection. */
  async #answer(command: string): Promise<string | undefined> {
    const number = this.commands.push(command);
    const failure = this.#failures.get(number);
    if (failure === undefined) return await this.#carryOut(command);
    if (failure === "carried out, then closed") await this.#carryOut(command);
    if (failure === "silent") {
      this.onSilence?.();
      return "";
    }
    if (failure === "garbage") return "0x\x01 what\n";
    return failure === "refused" ? "8008 Evaluation runtime error\n" : undefined;
  }

  async #carryOut(command: string): Promise<string> {
    const [, file] = /^configure check "(.*)"$/.exec(command) ?? [];
    if (file !== undefined) {
      return await this.#read(file).then(() => "0020 Configuration OK\n", refusal);
    }
    if (command === "configure") {
      return await this.#read(this.file).then((configuration) => {
        this.#before = this.#inForce;
        this.#inForce = configuration;
        return "0002-Reading configuration\n0003 Reconfigured\n";
      }, refusal);
    }
    if (command === "configure undo") {
      this.#inForce = this.#before;
      return "0021-Undo requested\n0003 Reconfigured\n";
    }
    if (command.startsWith("eval ")) {
      const value = this.#inForce.constants.get(command.slice(5));
      return value === undefined
        ? "9001 syntax error, unexpected CF_SYM_UNDEFINED\n"
        : `0023 ${value}\n`;
    }
    if (command === "show protocols all") return this.#protocols();
    if (command === "show bfd sessions") return "9001 No running BFD protocols\n";
    if (command.startsWith("show route export ")) {
      const lines = this.prefixes.map((prefix) => ` ${prefix}  blackhole [announced4] * (200)\n`);
      return `1007-Table master4:\n${lines.join("")}0000 \n`;
    }
    return "9001 syntax error, unexpected CF_SYM_UNDEFINED\n";
  }

  #protocols(): string {
    const lines = this.peers.flatMap((name) => {
      const error = this.errors.get(name);
      const state = error === undefined ? "Established" : "Down";
      return [
        `1002-${name}  BGP  ---  up  2026-01-01 00:00:00  ${state}  ${error ?? ""}`,
        `1006-  BGP state:          ${state}`,
        "     Neighbor address: 192.0.2.2",
        ...(error === undefined ? [] : [`     Last error:       ${error}`]),
        " ",
      ];
    });
    return [
      "2002-Name       Proto      Table      State  Since         Info",
      ...lines,
      "0000 ",
      "",
    ].join("\n");
  }

  async #read(file: string): Promise<FakeConfiguration> {
    return await readConfiguration(file);
  }
}

function refusal(error: unknown): string {
  return `0002-Reading configuration\n8002 ${error instanceof Error ? error.message : error}\n`;
}

async function readConfiguration(file: string): Promise<FakeConfiguration> {
  let text = await Deno.readTextFile(file).catch(() => {
    throw new Error(`${file}: No such file or directory`);
  });
  for (const [line, included] of text.matchAll(/^include "(.*)";$/gm)) {
    const path = included ?? "";
    const other = await Deno.readTextFile(path).catch(() => {
      throw new Error(`${file}:3:1 Unable to open included file ${path}`);
    });
    text = text.replace(line, other);
  }
  const constants = new Map(
    [...text.matchAll(/^define (\w+) = "(.*)";$/gm)].map(([, name, value]) => [name!, value!]),
  );
  for (const [index, line] of text.split("\n").entries()) {
    const [, used] = /^ *password (\w+);$/.exec(line) ?? [];
    if (used !== undefined && !constants.has(used)) {
      throw new Error(`${file}:${index + 1}:12 syntax error, unexpected CF_SYM_UNDEFINED`);
    }
  }
  return {
    constants,
    peers: [...text.matchAll(/^protocol bgp (\w+) \{$/gm)].map(([, name]) => name!),
    prefixes: [...text.matchAll(/^ *route (\S+) blackhole/gm)].map(([, prefix]) => prefix!),
  };
}

/** One connection: a greeting, then an answer for each line. */
class FakeConnection implements UnixConnection {
  readonly #answer: (command: string) => Promise<string | undefined>;
  readonly #output: Uint8Array[] = [new TextEncoder().encode("0001 BIRD 2.0.12 ready.\n")];
  #news = Promise.withResolvers<void>();
  #isClosed = false;

  constructor(answer: (command: string) => Promise<string | undefined>) {
    this.#answer = answer;
  }

  async read(buffer: Uint8Array): Promise<number | null> {
    for (;;) {
      const bytes = this.#output.shift();
      if (bytes !== undefined) {
        buffer.set(bytes);
        return bytes.length;
      }
      if (this.#isClosed) return null;
      await this.#news.promise;
    }
  }

  async write(data: Uint8Array): Promise<number> {
    const reply = await this.#answer(new TextDecoder().decode(data).trim());
    if (reply === undefined) this.close();
    // A stream has no bounds of messages.
    else for (const byte of new TextEncoder().encode(reply)) this.#output.push(Uint8Array.of(byte));
    this.#announce();
    return data.length;
  }

  close(): void {
    this.#isClosed = true;
    this.#announce();
  }

  #announce(): void {
    const { resolve } = this.#news;
    this.#news = Promise.withResolvers<void>();
    resolve();
  }
}
