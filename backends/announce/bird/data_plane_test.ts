import { assert, assertEquals, assertRejects } from "@std/assert";
import { defaultConfiguration } from "../../../lib/config/configuration.ts";
import { type Clock, systemClock } from "../../../lib/os/clock.ts";
import type { BgpPlan } from "../../../lib/routing/bgp_plan.ts";
import { announced, bgpPeer, bgpPlan } from "../../../tests/support/builders/bgp_plans.ts";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import { namesIn, withFolder } from "../../../tests/support/with_folder.ts";
import { BirdDataPlane } from "./data_plane.ts";
import type { UnixConnection } from "../../../lib/os/network.ts";

/** How a command goes wrong. `carried out` ones do their work before they fail. */
type BirdFailure = "closed" | "carried out, then closed" | "silent" | "garbage" | "refused";

/** The state that a test looks at. */
interface FakeConfiguration {
  readonly constants: ReadonlyMap<string, string>;
  readonly peers: readonly string[];
  readonly prefixes: readonly string[];
}

const NOTHING: FakeConfiguration = { constants: new Map(), peers: [], prefixes: [] };

/** A running BIRD, or one that does not run. */
class FakeBird {
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

interface Stage {
  readonly bird: FakeBird;
  readonly dataPlane: BirdDataPlane;
  readonly folder: string;
  readonly passwordFile: string;
  readonly logger: MemoryLogger;
  /** Ends the pauses between two looks. */
  readonly wake: () => void;
  /** Ends the waits of so many milliseconds. */
  readonly fire: (ms: number) => void;
}

/** Runs a test with a data plane whose BIRD has the configuration of an empty plan. */
function withBird(test: (stage: Stage) => Promise<void>): Promise<void> {
  return withFolder(async (folder) => {
    const passwordFile = `${folder}/password`;
    await Deno.writeTextFile(passwordFile, "secret\n");
    const bird = new FakeBird(`${folder}/bird.conf`);
    const paths = {
      file: bird.file,
      secretsFile: `${folder}/bird-secrets.conf`,
      socket: "/run/bird.ctl",
    };
    const commands = new FakeCommandRunner().on("ip", {});
    // Time-outs come when BIRD says nothing, and never because the machine is busy.
    const timers = new Map<() => void, number>();
    bird.onSilence = () => [...timers.keys()].forEach((fire) => fire());
    const fire = (ms: number) =>
      [...timers].filter(([, each]) => each === ms).forEach(([callback]) => callback());
    const logger = new MemoryLogger();
    const pauses: (() => void)[] = [];
    const wake = () => pauses.splice(0).forEach((end) => end());
    const clock: Clock = {
      ...systemClock,
      sleep: () => new Promise((resolve) => void pauses.push(resolve)),
      setTimer(ms, callback) {
        timers.set(callback, ms);
        return { cancel: () => void timers.delete(callback) };
      },
    };
    let number = 0;
    await using dataPlane = new BirdDataPlane(
      {
        ...{ clock, commands, connect: bird.connect, logger },
        random: () => (++number % 1000) / 1000,
      },
      paths,
    );
    bird.isRunning = false;
    await assertRejects(() => dataPlane.sync(bgpPlan()), Error, "BIRD does not listen on");
    await bird.start();
    await test({ bird, dataPlane, folder, passwordFile, logger, wake, fire });
  });
}

function planWith(passwordFile: string, ...prefixes: readonly string[]): BgpPlan {
  return bgpPlan({
    peers: [bgpPeer("tor", "192.0.2.2", { passwordFile })],
    announced: prefixes.map((prefix) => announced(prefix)),
  });
}

/** The commands of a sync that changes the configuration. */
const SYNC_COMMANDS = 8;
const FAILURES: readonly BirdFailure[] = [
  "closed",
  "carried out, then closed",
  "silent",
  "garbage",
  "refused",
];

for (const failure of FAILURES) {
  Deno.test(`a sync in which a command of BIRD is ${failure} is completed by the next one`, () =>
    withBird(async ({ bird, dataPlane, folder, passwordFile }) => {
      const former = planWith(passwordFile, "203.0.113.10/32");
      const wanted = planWith(passwordFile, "203.0.113.11/32");
      for (let number = 1; number <= SYNC_COMMANDS; number++) {
        await dataPlane.sync(former);
        await Deno.writeTextFile(passwordFile, `secret ${number}\n`);
        const before = bird.commands.length;
        bird.failAt(number, failure);
        const error = await dataPlane.sync(wanted).catch((error) => error);
        const failed = bird.commands[before + number - 1];
        const isHarmless = failed === "show bfd sessions" ||
          failed?.startsWith("eval kube_relay_s");
        assert(error instanceof Error || isHarmless, `'${failed}' ${failure}: no error`);
        const said = `${error instanceof Error ? error.message : ""}`;
        assert(!said.includes("secret "), said);
        await dataPlane.sync(wanted);
        assertEquals(bird.prefixes, ["203.0.113.11/32"], `after '${failed}' ${failure}`);
        assertEquals(await dataPlane.compare(wanted), [], `after '${failed}' ${failure}`);
        const names = ["bird-secrets.conf", "bird.conf", "password"];
        assertEquals(await namesIn(folder), names, `after '${failed}' ${failure}`);
      }
    }));
}

Deno.test("a sync that changes the configuration runs as many commands as the tests of failures expect", () =>
  withBird(async ({ bird, dataPlane, passwordFile }) => {
    const before = bird.commands.length;
    await dataPlane.sync(planWith(passwordFile, "203.0.113.10/32"));
    assertEquals(bird.commands.length - before, SYNC_COMMANDS, bird.commands.join("\n"));
  }));

Deno.test("a sync while BIRD is down writes the file, which BIRD has once it starts", () =>
  withBird(async ({ bird, dataPlane, passwordFile }) => {
    const plan = planWith(passwordFile, "203.0.113.10/32");
    bird.isRunning = false;
    const error = await assertRejects(() => dataPlane.sync(plan), Error);
    assertEquals(
      error.message,
      "Cannot apply the BGP configuration: BIRD does not listen on /run/bird.ctl. It reads the " +
        `new configuration from ${bird.file} when it starts`,
    );
    assertEquals((await dataPlane.compare(plan)).map(({ name, kind }) => [name, kind]), [
      ["BIRD", "missing"],
      ["tor", "missing"],
    ]);
    await bird.start();
    assertEquals((await dataPlane.sync(plan)).operations, {});
    assertEquals(bird.prefixes, ["203.0.113.10/32"]);
  }));

Deno.test("a BIRD that reads another file is undone, and the error names the expected file", () =>
  withBird(async ({ bird, dataPlane, folder, passwordFile }) => {
    await dataPlane.sync(planWith(passwordFile, "203.0.113.10/32"));
    const other = `${folder}/other.conf`;
    const another = (await Deno.readTextFile(bird.file)).replaceAll("203.0.113.10", "203.0.113.99");
    await Deno.writeTextFile(other, another);
    Object.defineProperty(bird, "file", { value: other });
    await assertRejects(
      () => dataPlane.sync(planWith(passwordFile, "203.0.113.11/32")),
      Error,
      `it does not read its configuration from ${folder}/bird.conf`,
    );
    assertEquals(bird.prefixes, ["203.0.113.10/32"]);
    const text = await Deno.readTextFile(`${folder}/bird.conf`);
    assert(text.includes("203.0.113.10/32"), text);
  }));

Deno.test("a peer with too many prefixes stays shut down until its settings change", () =>
  withBird(async ({ bird, dataPlane, passwordFile }) => {
    const plan = planWith(passwordFile, "203.0.113.10/32");
    await dataPlane.sync(plan);
    const isShutDown = async () => (await Deno.readTextFile(bird.file)).includes("  disabled;");
    bird.errors.set("peer_tor", "Automatic shutdown: Route limit exceeded");
    const { quarantined } = await dataPlane.sync(plan);
    assertEquals([quarantined[0]?.key, await isShutDown()], ["peer tor", true]);
    // BIRD forgets the reason when it is configured again.
    bird.errors.set("peer_tor", "");
    await dataPlane.sync(planWith(passwordFile));
    assertEquals(await isShutDown(), true);
    // The administrator enables it.
    bird.errors.delete("peer_tor");
    assertEquals((await dataPlane.sync(plan)).quarantined, []);
    assertEquals(await isShutDown(), false);
  }));

Deno.test("a new password whose reconfiguration had no answer is brought by the next sync", () =>
  withBird(async ({ bird, dataPlane, passwordFile }) => {
    const plan = planWith(passwordFile, "203.0.113.10/32");
    await dataPlane.sync(plan);
    await Deno.writeTextFile(passwordFile, "other\n");
    bird.failAt(6, "silent");
    await assertRejects(() => dataPlane.sync(plan), Error, "'configure' in BIRD: no answer");
    const { operations } = await dataPlane.sync(plan);
    assertEquals(operations, { files: 0, reconfigurations: 1 });
    assertEquals((await dataPlane.sync(plan)).operations, {});
  }));

Deno.test("a file of passwords that was removed is written again, which a restart of BIRD needs", () =>
  withBird(async ({ dataPlane, folder, passwordFile }) => {
    const plan = planWith(passwordFile, "203.0.113.10/32");
    await dataPlane.sync(plan);
    await Deno.remove(`${folder}/bird-secrets.conf`);
    assertEquals((await dataPlane.sync(plan)).operations, { files: 1, reconfigurations: 1 });
    assertEquals((await dataPlane.sync(plan)).operations, {});
  }));

Deno.test("watch() has a BIRD that it cannot read synced, and leaves it to the syncs that fail", () =>
  withBird(async ({ bird, dataPlane, logger, wake }) => {
    await dataPlane.sync(bgpPlan());
    let calls = 0;
    const called = Promise.withResolvers<void>();
    const stop = new AbortController();
    const watching = dataPlane.watch(() => {
      calls++;
      called.resolve();
    }, stop.signal);
    bird.failAt(1, "garbage");
    wake();
    await called.promise;
    assertEquals([calls, logger.lines], [1, []]);

    bird.failAt(1, "garbage");
    await assertRejects(() => dataPlane.sync(bgpPlan()));
    const { length } = bird.commands;
    wake();
    // It has its turn after a look.
    await dataPlane.cleanup({ dryRun: true });
    assertEquals([calls, bird.commands.length], [1, length]);
    stop.abort();
    wake();
    await watching;
  }));

Deno.test("sessions() is asked for once by all reports, which wait two seconds for a BIRD that is silent", () =>
  withBird(async ({ bird, dataPlane, passwordFile, fire }) => {
    const plan = planWith(passwordFile, "203.0.113.10/32");
    await dataPlane.sync(plan);
    const silent = Promise.withResolvers<void>();
    bird.onSilence = silent.resolve;
    bird.failAt(1, "silent");
    const before = bird.commands.length;
    const reports = [1, 2, 3].map(() =>
      assertRejects(() => dataPlane.sessions(plan), Error, "BIRD has not answered within 2 s")
    );
    await silent.promise;
    fire(2_000);
    await Promise.all(reports);
    assertEquals(bird.commands.slice(before), ["show protocols all"]);
    const last = assertRejects(() => dataPlane.sessions(plan), Error, "within 10000 ms");
    fire(10_000);
    await last;
    assertEquals((await dataPlane.sessions(plan)).map(({ peer }) => peer), ["tor"]);
  }));

Deno.test("the unit starts BIRD with the default paths", async () => {
  const { configFile: file, controlSocket: socket } = defaultConfiguration().routing.bgp;
  const unit = await Deno.readTextFile(
    new URL("../../../deploy/kube-relay-bird.service", import.meta.url),
  );
  assert(unit.includes(`\nExecStart=/usr/sbin/bird -f -R -c ${file} -s ${socket}\n`), unit);
  assert(unit.includes(`until test -e ${file};`), unit);
  // The folder that the unit of kube-relay may write to.
  assert(file.startsWith("/run/kube-relay/"), file);
});
