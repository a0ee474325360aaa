import { assertEquals, assertInstanceOf } from "@std/assert";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import {
  CommandError,
  type CommandOptions,
  type CommandRunner,
} from "../../../lib/os/command_runner.ts";
import { asOneLine, HeldNft } from "./held_nft.ts";
import { nftFamily } from "./nft_objects.ts";
import { NftError, NftRunner } from "./nft_runner.ts";
import { NftDraft } from "./nft_transaction.ts";

/**
 * What a held nft does with a line; `odd`: it fails without the word that marks errors; `late`: it
 * applies it when it is to end.
 */
type Reply = "applied" | "refused" | "odd" | "silent" | "late" | "dies";

/** Stands in for the programs. */
class FakeNftProcesses implements CommandRunner {
  readonly clock = new FakeClock();
  readonly held = new HeldNft({ clock: this.clock, commands: this });
  /** The lines of all held processes, with a mark where one starts and ends. */
  readonly log: string[] = [];
  reply: Reply = "applied";
  hasInteractiveMode = true;
  /** The exit code of a process for one text. */
  codeAlone = 0;
  /** Lets a process end that has answered late. */
  readonly dying = Promise.withResolvers<void>();
  /** What a held nft prints at its start. */
  greeting: string | undefined;

  async run(_program: string, args: readonly string[], options: CommandOptions = {}) {
    if (!args.includes("-i")) {
      const text = typeof options.stdin === "string" ? options.stdin : "other";
      this.log.push(`${args.join(" ")} ${text.slice(0, 20)}`);
      return { code: this.codeAlone, stdout: "", stderr: "" };
    }
    this.log.push("start");
    if (this.hasInteractiveMode) await this.#hold(options);
    this.log.push("end");
    return { code: 0, stdout: "", stderr: "" };
  }

  /** Writes a text as a backend does. */
  async write(stdin: CommandOptions["stdin"] = "add table ip t\n"): Promise<number> {
    return (await this.held.run("nft", ["-f", "-"], { stdin: stdin! })).code;
  }

  async #hold({ stdin, signal, onErrorLine }: CommandOptions): Promise<void> {
    const killed = Promise.withResolvers<never>();
    signal?.addEventListener(
      "abort",
      () => killed.reject(new CommandError("nft", ["-i"], "aborted", "killed")),
    );
    const serve = async () => {
      for await (const piece of stdin as AsyncIterable<string>) {
        const [line = "", mark = ""] = piece.split("\n");
        if (line !== "") this.log.push(line);
        const reply = line === "" ? "applied" : this.reply;
        if (line === "" && this.greeting) await onErrorLine?.(this.greeting);
        if (reply === "dies") return;
        if (reply === "silent") continue;
        if (reply === "late") await killed.promise.catch(() => {});
        if (reply === "refused") await onErrorLine?.("Error: No such file or directory");
        if (reply === "odd") await onErrorLine?.("Operation not permitted (you must be root)");
        for (const each of ["Error: syntax error, unexpected string", mark, "^^^^^^^^^^"]) {
          await onErrorLine?.(each);
        }
        // The process ends some time after its last answer.
        if (reply === "late") return await this.dying.promise;
      }
    };
    const ended = this.reply === "late" ? [serve()] : [serve(), killed.promise];
    await Promise.race(ended).catch(() => {});
  }
}

const LINE = "add table ip t;";
const ONE_SHOT = "-f - add table ip t\n";

Deno.test("HeldNft gives small writes to one process, which ends after a minute without any", async () => {
  const nft = new FakeNftProcesses();
  assertEquals(await Promise.all([nft.write(), nft.write()]), [0, 0]);
  await nft.clock.advance(59_000);
  await nft.write();
  await nft.clock.advance(59_000);
  assertEquals(nft.log, ["start", LINE, LINE, LINE]);
  await nft.clock.advance(1_000);
  assertEquals(nft.log.slice(4), ["end"]);
  await nft.write();
  assertEquals(nft.log.slice(5), ["start", LINE]);
  await nft.clock.advance(60_000);
  assertEquals(nft.clock.pendingTimers, 0);
});

Deno.test("HeldNft gives a small write of NftRunner to the process, whatever pieces it is made of", async () => {
  const nft = new FakeNftProcesses();
  const ips = { kind: "set", declaration: "type ipv4_addr" } as const;
  const table = { family: nftFamily("IPv4"), name: "t", containers: new Map([["ips", ips]]) };
  const write = async (elements: number) => {
    const draft = new NftDraft();
    for (let index = 0; index < elements; index++) {
      draft.add({ kind: "ips", name: `10.0.0.${index}` }, undefined, "", "web");
    }
    const transaction = draft.transaction(table);
    transaction.add("flush chain", "unused");
    await new NftRunner({ commands: nft.held }, table).write(transaction);
  };
  await write(2);
  assertEquals(nft.log.splice(0), [
    "start",
    "add element ip t ips {   10.0.0.0,   10.0.0.1 }; flush chain ip t unused;",
  ]);
  await write(2_000);
  assertEquals(nft.log, ["-f - other"]);
});

Deno.test("HeldNft does without for five minutes where only a process of its own applies a text", async () => {
  for (const reply of ["odd", "dies", "silent"] as const) {
    const nft = new FakeNftProcesses();
    nft.reply = reply;
    const writing = nft.write();
    await nft.clock.advance(0);
    await nft.clock.advance(14_999);
    assertEquals(nft.log.includes(ONE_SHOT), reply !== "silent");
    await nft.clock.advance(1);
    assertEquals(await writing, 0);
    await nft.clock.advance(reply === "silent" ? 299_999 : 284_999);
    assertEquals(await nft.write(), 0);
    const first = ["start", LINE, "end", ONE_SHOT];
    assertEquals(nft.log.splice(0, 4).toSorted(), first.toSorted());
    assertEquals(nft.log.splice(0), [ONE_SHOT]);
    nft.reply = "applied";
    await nft.clock.advance(1);
    await nft.write();
    assertEquals(nft.log, ["start", LINE]);
  }
});

Deno.test("HeldNft gives no line to a process that answers while it is being ended", async () => {
  const nft = new FakeNftProcesses();
  nft.reply = "late";
  const writing = nft.write();
  await nft.clock.advance(15_000);
  assertEquals(await writing, 0);
  nft.reply = "applied";
  assertEquals(await nft.write(), 0);
  nft.dying.resolve();
  await nft.clock.advance(0);
  assertEquals(nft.log, ["start", LINE, "start", LINE, "end"]);
});

Deno.test("HeldNft takes a new process after 1,000 lines, which nft keeps as its history", async () => {
  const nft = new FakeNftProcesses();
  for (let write = 0; write < 1_500; write++) await nft.write();
  await nft.clock.advance(0);
  assertEquals(nft.log.filter((each) => each === "start").length, 2);
  assertEquals(nft.log.filter((each) => each === "end").length, 1);
  assertEquals(nft.log.filter((each) => each === LINE).length, 1_500);
});

Deno.test("HeldNft starts no process for other commands, and for text that is no line", async () => {
  const nft = new FakeNftProcesses();
  await nft.write("x".repeat(8_193));
  await nft.write(["add table ip t\n", "add table ip u\n"]);
  await nft.write("add table ip t # mine\n");
  await nft.write(async function* () {}());
  await nft.held.run("nft", ["--check", "-f", "-"], { stdin: "add table ip t\n" });
  await nft.held.run("nft", ["-f", "-"]);
  const { signal } = new AbortController();
  await nft.held.run("nft", ["-f", "-"], { stdin: "add table ip t\n", signal });
  assertEquals(nft.log.length, 7);
  assertEquals(nft.log.includes("start"), false);
});

Deno.test("a write by an nft that hangs and ignores SIGTERM is given up within 90 seconds", async () => {
  const clock = new FakeClock();
  const started: string[] = [];
  // As the command runner, which sends SIGKILL a second after a SIGTERM that is ignored.
  const commands: CommandRunner = {
    run: (program, args, { timeoutMs = 30_000, signal } = {}) =>
      new Promise((_, reject) => {
        started.push(args.join(" "));
        const end = (kind: "timeout" | "aborted") =>
          void clock.setTimer(1_000, () => reject(new CommandError(program, args, kind, kind)));
        const timer = clock.setTimer(timeoutMs, () => end("timeout"));
        signal?.addEventListener("abort", () => (timer.cancel(), end("aborted")), { once: true });
      }),
  };
  const held = new HeldNft({ clock, commands });
  const runner = new NftRunner({ commands: held }, { family: "ip", name: "t" });
  let error: unknown;
  const writing = runner.remove().catch((reason) => error = reason);
  await clock.advance(90_000);
  await writing;
  assertInstanceOf(error, NftError);
  assertEquals([error.kind, started], ["unclear", ["-i", "-f -"]]);
});

Deno.test("asOneLine() refuses what a line editor or a longer line would read otherwise", () => {
  for (
    const text of [
      "add table ip t\t\n",
      "add table ip t # mine\nadd table ip u\n",
      "add table ip t \\\n",
      'add rule ip t c comment "é"\n',
      'add rule ip t c comment "a\nb"\n',
      "add set ip t s {\n",
      "table ip t {\n  chain c {\n    counter\n    accept\n  }\n}\n",
      "\u0004",
    ]
  ) {
    assertEquals(asOneLine(text), undefined, text);
  }
});
