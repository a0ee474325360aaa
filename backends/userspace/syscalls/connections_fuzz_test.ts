/**
 * Connections of all kinds at once, through a kernel that has no files left now and then, and takes less than
 * it is given: what arrives is what was sent, and no file stays open.
 */
import { assert, assertEquals } from "@std/assert";
import { constants } from "node:os";
import { testServicePlan, testSharedPlan } from "../../../tests/support/builders/service_plans.ts";
import { eventually } from "../../../tests/support/eventually.ts";
import { LIBC, TurnedEngine } from "../../../tests/support/drivers/turned_engine.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import { testNeeding } from "../../../tests/support/requirement.ts";
import { systemNetwork } from "../../../lib/os/network.ts";
import { Forwarding } from "../forwarding.ts";
import { serviceAddresses } from "../listeners.ts";
import { TcpAcceptor } from "../tcp/tcp_acceptor.ts";
import { TcpForwarder } from "../tcp/tcp_forwarder.ts";
import { Libc, SystemError } from "./libc.ts";

const { EMFILE } = constants.errno;
const CONNECTIONS = 300;
const AT_ONCE = 24;
const MEGABYTE = 1 << 20;
/** Sizes of what one side sends, each about as often as the others. */
const SIZES = [0, 1, 1000, 16_384, 65_536, 100_000, MEGABYTE];
const LARGEST = 20 * MEGABYTE;
/** The bytes at each place, which are those of no other place within 64 KiB. */
const PATTERN = Uint8Array.from({ length: LARGEST + 1 }, (_, at) => at ^ at >> 8 ^ at >> 16);

function randomFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = Math.imul(state ^ state >>> 15, 0x2c1b3c6d) + 0x9e3779b9 | 0;
    return (Math.imul(state ^ state >>> 12, 0x297a2d39) >>> 0) / 2 ** 32;
  };
}

/** Fails as kernels do, only more often. */
class StingyLibc extends Libc {
  /** Also for sockets, not for pipes alone. */
  lacksFiles = false;

  constructor(readonly random: () => number) {
    super();
  }

  override socket(...args: Parameters<Libc["socket"]>): number {
    const fails = this.lacksFiles && args[0] === "IPv4" && this.random() < 0.02;
    if (fails) throw new SystemError("socket", EMFILE);
    return super.socket(...args);
  }

  override accept(fd: number): number {
    return this.lacksFiles && this.random() < 0.05 ? -EMFILE : super.accept(fd);
  }

  override pipe(size: number) {
    return this.random() < 0.2 ? undefined : super.pipe(size);
  }

  override send(fd: number, data: Uint8Array, length: number): number {
    return super.send(fd, data, this.#some(length));
  }

  override splice(from: number, to: number, most: number): number {
    return super.splice(from, to, this.#some(most));
  }

  #some(length: number): number {
    return this.random() < 0.2 ? Math.ceil(length * this.random()) : length;
  }
}

/** What one side of a connection does. */
interface Script {
  readonly sends: number;
  /** Closes after so many bytes, without reading on: a peer that has sent more gets a reset. */
  readonly breaksAt: number;
  /** Reads at most so much at a time. */
  readonly reads: number;
}

/** Plays a script, and returns the bytes received, which are checked; a connection may break. */
async function play(connection: Deno.TcpConn, script: Script): Promise<number> {
  let received = 0;
  const send = async () => {
    const most = Math.min(script.sends, script.breaksAt);
    for (let sent = 0; sent < most;) {
      sent += await connection.write(PATTERN.subarray(sent, Math.min(most, sent + MEGABYTE)));
    }
    if (script.breaksAt <= script.sends) connection.close();
    else await connection.closeWrite();
  };
  const receive = async () => {
    const buffer = new Uint8Array(script.reads);
    for (let count; (count = await connection.read(buffer)) !== null; received += count) {
      for (let at = 0; at < count; at += 7) {
        if (buffer[at] !== PATTERN[received + at]) throw new RangeError(`byte ${received + at}`);
      }
    }
  };
  for (const result of await Promise.allSettled([send(), receive()])) {
    if (result.status === "rejected" && result.reason instanceof RangeError) throw result.reason;
  }
  try {
    connection.close();
  } catch {
    // Its script has closed it.
  }
  return received;
}

async function openFiles(): Promise<number> {
  // Deno reads /proc only with all permissions.
  const { stdout } = await new Deno.Command("ls", { args: [`/proc/${Deno.pid}/fd`] }).output();
  return new TextDecoder().decode(stdout).trim().split("\n").length;
}

const test = testNeeding("the syscalls engine", [LIBC]);

for (const [name, breaks] of [["that end in order", false], ["that break", true]] as const) {
  test(`connections ${name} lose no byte and no file, in a kernel short of everything`, async () => {
    const seed = Number(Deno.env.get("SEED") ?? Math.floor(Math.random() * 2 ** 31));
    // deno-lint-ignore no-console -- to play it again
    console.log(`SEED=${seed}`);
    const random = randomFrom(seed);
    // Deno opens some of its own at the first process.
    await openFiles();
    const filesBefore = await openFiles();
    const scripts = { client: [] as Script[], endpoint: [] as Script[] };
    const scriptOf = (side: keyof typeof scripts): Script => {
      const size = random() < 0.02 ? LARGEST : SIZES[Math.floor(random() * SIZES.length)]!;
      const script = {
        sends: size,
        breaksAt: breaks && random() < 0.2 ? Math.floor(random() * 200_000) : Infinity,
        reads: random() < 0.2 ? 1000 : 65_536,
      };
      scripts[side].push(script);
      return script;
    };
    const received = { client: 0, endpoint: 0 };
    {
      const libc = new StingyLibc(random);
      await using turned = new TurnedEngine([], libc);
      const { engine } = turned;
      const server = Deno.listen({ hostname: "127.0.0.1", port: 0 });
      const forwarding = new Forwarding({
        ...{ clock: engine.clock, logger: new MemoryLogger(), network: systemNetwork, engine },
      }, { udpTimeoutMs: 1000 });
      const plan = testServicePlan({ to: [`127.0.0.1:${server.addr.port}`] });
      const at = serviceAddresses(plan, testSharedPlan())[0]!;
      const source = engine.listenTcp({ hostname: "127.0.0.1", port: 0 });
      libc.lacksFiles = breaks;
      const forwarder = new TcpForwarder(forwarding, plan);
      const acceptor = new TcpAcceptor(forwarding, source, forwarder, at);
      acceptor.start();
      const served: Promise<void>[] = [];
      const serving = (async () => {
        for await (const connection of server) {
          served.push(
            play(connection, scriptOf("endpoint")).then((bytes) => {
              received.endpoint += bytes;
            }),
          );
        }
      })();
      let left = CONNECTIONS;
      await Promise.all(Array.from({ length: AT_ONCE }, async () => {
        while (left-- > 0) {
          const at = { hostname: "127.0.0.1", port: source.addr.port };
          const bytes = await play(await Deno.connect(at), scriptOf("client"));
          received.client += bytes;
        }
      }));
      await Promise.all(served);
      acceptor.close();
      forwarding.close();
      await forwarding.loops.zero();
      server.close();
      await serving;
      assertEquals([forwarder.size, forwarding.sessions.value], [0, 0]);
    }
    const sent = (side: keyof typeof scripts) =>
      scripts[side].reduce((sum, { sends }) => sum + sends, 0);
    if (breaks) assert(received.client > MEGABYTE && received.endpoint > MEGABYTE);
    else assertEquals([received.client, received.endpoint], [sent("endpoint"), sent("client")]);
    // Deno's own change a little, as those of the program that lists them do.
    await eventually(
      "as many files are open as before",
      async () => await openFiles() <= filesBefore,
    );
  });
}
