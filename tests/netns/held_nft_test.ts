/** Small writes in one `nft`: the kernel ends up with what a process for each of them writes. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { HeldNft } from "../../backends/netfilter/nft/held_nft.ts";
import { systemClock } from "../../lib/os/clock.ts";
import {
  CommandError,
  type CommandRunner,
  systemCommandRunner,
} from "../../lib/os/command_runner.ts";
import { program, testNeeding } from "../support/requirement.ts";
import { Namespace, netnsRequirements } from "../support/stages/netns.ts";

const test = testNeeding("a held nft", [...netnsRequirements(), program("nft"), program("pgrep")]);

/** Runs nft in a namespace: held, or each write in a process of its own. */
class NftMachine implements AsyncDisposable {
  readonly started: string[] = [];
  readonly held: HeldNft;
  readonly #ended = new AbortController();
  readonly #running = new Set<Promise<unknown>>();

  /** `holder` runs instead of `nft -i`. A held nft is ended after this time without an answer. */
  constructor(
    readonly namespace: Namespace,
    { holder = ["nft", "-i"], answerMs = 15_000 }: {
      readonly holder?: readonly string[];
      readonly answerMs?: number;
    } = {},
  ) {
    const commands: CommandRunner = {
      run: (program, args, options = {}) => {
        const words = args.join(" ");
        this.started.push(words);
        const command = words === "-i" ? holder : [program, ...args];
        const signals = [this.#ended.signal, ...options.signal ? [options.signal] : []];
        const running = systemCommandRunner.run(
          "ip",
          ["netns", "exec", namespace.name, ...command],
          { ...options, signal: AbortSignal.any(signals) },
        );
        this.#running.add(running);
        running.catch(() => {}).finally(() => this.#running.delete(running));
        return running;
      },
    };
    // No timer may be left behind.
    const clock = {
      now: () => systemClock.now(),
      setTimer: (ms: number, callback: () => void) => {
        const timer = systemClock.setTimer(ms === 15_000 ? answerMs : ms, callback);
        this.#ended.signal.addEventListener("abort", () => timer.cancel());
        return timer;
      },
    };
    this.held = new HeldNft({ clock, commands });
  }

  async write(stdin: string): Promise<{ readonly code: number; readonly stderr: string }> {
    const { code, stderr } = await this.held.run("nft", ["-f", "-"], { stdin });
    return { code, stderr };
  }

  /** As a process of its own. */
  async writeAlone(stdin: string): Promise<{ readonly code: number; readonly stderr: string }> {
    const args = ["netns", "exec", this.namespace.name, "nft", "-f", "-"];
    const { code, stderr } = await systemCommandRunner.run("ip", args, { stdin });
    return { code, stderr };
  }

  async ruleset(): Promise<string> {
    return await this.namespace.output("nft", ["list", "ruleset"]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#ended.abort();
    await Promise.allSettled(this.#running);
  }
}

/**
 * The id of the `nft -i` that runs. By its command line: a dynamic loader that runs nft gives its own
 * name to the process.
 */
async function heldProcess(): Promise<number | undefined> {
  const args = ["-P", `${Deno.pid}`, "-f", "nft -i$"];
  const { code, stdout } = await systemCommandRunner.run("pgrep", args);
  return code === 0 ? Number(stdout) : undefined;
}

async function runningProcess(): Promise<number> {
  const id = await heldProcess();
  assert(id !== undefined, "an nft is held");
  return id;
}

/** What backends write: tables, sets, maps, chains, rules, elements on one line and on several. */
const TEXTS = [
  "add table ip t\n" +
  "add set ip t ips { type ipv4_addr ; }\n" +
  "add map ip t ports { type ipv4_addr . inet_proto . inet_service : verdict ; }\n" +
  "add map ip t clients { type ipv4_addr : verdict ; flags dynamic,timeout ; timeout 1h ; }\n" +
  "add chain ip t inlet { type filter hook input priority -5 ; }\n" +
  "add chain ip t web\nadd chain ip t dns\n",
  'add rule ip t web ct state new counter accept comment "of web: { } ; done"\n' +
  "add rule ip t dns numgen random mod 2 vmap { 0 : goto web, 1 : drop }\n" +
  "add rule ip t inlet ip daddr . meta l4proto . th dport vmap @ports\n",
  "add element ip t ips {\n  10.0.0.1,\n  10.0.0.2,\n  10.0.0.3\n}\n" +
  "add element ip t ports { 10.0.0.1 . tcp . 80 : goto web }\n",
  "delete element ip t ips { 10.0.0.2 }\n" +
  "add element ip t ips {\n  10.0.0.4,\n  10.0.0.5\n}\n" +
  "delete element ip t ports { 10.0.0.1 . tcp . 80 }\n" +
  "add element ip t ports { 10.0.0.1 . tcp . 80 : goto dns }\n",
  "flush chain ip t web\nadd rule ip t web drop\ndelete element ip t ips { 10.0.0.1 }\n",
  "flush set ip t ips\nadd table ip6 u\nadd chain ip6 u c\n",
  "delete table ip6 u\n",
];

test("a held nft writes what a process for each text writes, and is one process", async () => {
  await using namespace = await Namespace.create("held");
  await using other = await Namespace.create("alone");
  await using machine = new NftMachine(namespace);
  await using alone = new NftMachine(other);
  for (const text of TEXTS) {
    assertEquals(await machine.write(text), { code: 0, stderr: "" }, text);
    assertEquals(await alone.writeAlone(text), { code: 0, stderr: "" }, text);
    assertEquals(await machine.ruleset(), await alone.ruleset(), text);
  }
  assertEquals(machine.started, ["-i"]);
});

test("a held nft applies nothing of a refused text, and the error is that of a process of its own", async () => {
  await using namespace = await Namespace.create("held");
  await using machine = new NftMachine(namespace);
  await machine.write(TEXTS[0]!);
  const before = await machine.ruleset();
  for (
    const line of [
      "delete element ip t ips { 10.9.9.9 }",
      "add element ip t nowhere { 10.9.9.9 }",
      "add rule ip t web goto nowhere",
      "no command",
      "add element ip t ips { 300.0.0.1, }",
      "add chain ip t web { type filter hook input priority 0 ; }",
      "add rule ip t web drop }",
    ]
  ) {
    const text = `add element ip t ips { 10.0.0.9 }\n${line}\n`;
    assertEquals(await machine.write(text), await machine.writeAlone(text), line);
    assertEquals(await machine.ruleset(), before, line);
  }
  assertEquals((await machine.write(TEXTS[1]!)).code, 0);
  assertEquals(machine.started.filter((each) => each === "-i").length, 1);
});

test("a held nft sees what other programs have written meanwhile, and may be killed", async () => {
  await using namespace = await Namespace.create("held");
  await using machine = new NftMachine(namespace);
  await machine.write(TEXTS[0]!);
  await machine.writeAlone(
    "delete table ip t\nadd table ip t\nadd set ip t new { type ipv4_addr ; }\n",
  );
  assertEquals((await machine.write("add element ip t new { 10.0.0.1 }\n")).code, 0);
  assertEquals((await machine.write("add element ip t ips { 10.0.0.1 }\n")).code, 1);
  Deno.kill(await runningProcess(), "SIGKILL");
  assertEquals((await machine.write("add element ip t new { 10.0.0.2 }\n")).code, 0);
  assert((await machine.ruleset()).includes("elements = { 10.0.0.1, 10.0.0.2 }"));
});

/** An nft that ends after its first line, before it reads the one that asks whether it was applied. */
const DIES_EARLY = ["bash", "-c", "sed -u 3q | nft -i"];

test("a text that a held nft applied before it died is applied again, or called unclear", async () => {
  await using namespace = await Namespace.create("held");
  await using machine = new NftMachine(namespace, { holder: DIES_EARLY });
  await machine.writeAlone(`${TEXTS[0]!}add element ip t ips { 10.0.0.1 }\n`);
  const error = await assertRejects(
    () => machine.write("delete element ip t ips { 10.0.0.1 }\n"),
    CommandError,
    "No such file or directory",
  );
  assertEquals(error.kind, "failed");
  const rules = "add chain ip t web\nflush chain ip t web\nadd rule ip t web counter drop\n";
  assertEquals((await machine.write(rules)).code, 0);
  assertEquals((await machine.ruleset()).split("counter").length, 2);
  assertEquals(machine.started, ["-i", "-f -", "-i", "-f -"]);
});

test("a held nft that is stopped has ended before its text is applied by another", async () => {
  await using namespace = await Namespace.create("held");
  await using machine = new NftMachine(namespace, { answerMs: 200 });
  await machine.write(TEXTS[0]!);
  Deno.kill(await runningProcess(), "SIGSTOP");
  assertEquals((await machine.write("add element ip t ips { 10.0.0.1 }\n")).code, 0);
  assertEquals(await heldProcess(), undefined, "it has ended");
  assert((await machine.ruleset()).includes("elements = { 10.0.0.1 }"));
});
