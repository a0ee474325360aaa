/** Tests the executable's notifications to systemd: readiness, signs of life, its end. */
import { assert, assertEquals } from "@std/assert";
import { eventually } from "../support/eventually.ts";
import { testNeeding } from "../support/requirement.ts";
import { Executable, EXECUTABLE_REQUIREMENTS, USERS } from "./executable.ts";

const test = testNeeding("tests/binary/service_manager_test.ts", EXECUTABLE_REQUIREMENTS);

/** The receiving end of `NOTIFY_SOCKET`. */
class NotifySocket implements AsyncDisposable {
  readonly #socket: Deno.DatagramConn;
  readonly #task: Promise<void>;
  /** Every line of every message, in order. */
  readonly lines: string[] = [];

  constructor(path: string) {
    this.#socket = Deno.listenDatagram({ transport: "unixpacket", path });
    this.#task = this.#receive();
  }

  count(line: string): number {
    return this.lines.filter((received) => received === line).length;
  }

  async #receive(): Promise<void> {
    const buffer = new Uint8Array(4096);
    try {
      for (;;) {
        const [data] = await this.#socket.receive(buffer);
        this.lines.push(...new TextDecoder().decode(data).split("\n").filter((line) => line));
      }
    } catch {
      // The socket was closed.
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#socket.close();
    await this.#task;
  }
}

for (const user of USERS) {
  for (const kind of ["path", "abstract name"] as const) {
    test(`the executable speaks to systemd at a socket with a ${kind}, as ${user}`, async () => {
      await using executable = await Executable.create(user);
      const path = `${executable.directory}/notify`;
      await using socket = new NotifySocket(kind === "path" ? path : `\0${path}`);
      if (kind === "path") await Deno.chmod(path, 0o777);
      const process = executable.start([], [
        `NOTIFY_SOCKET=${kind === "path" ? path : `@${path}`}`,
        // Half a second: a sign of life is due every quarter.
        "WATCHDOG_USEC=500000",
      ]);
      await using _ = process;

      await eventually("READY=1", () => socket.count("READY=1") === 1);
      const before = socket.count("WATCHDOG=1");
      await eventually("three signs of life", () => socket.count("WATCHDOG=1") >= before + 3);
      process.signal("SIGTERM");
      await eventually("STOPPING=1", () => socket.count("STOPPING=1") === 1);
      assertEquals((await process.status()).code, 0, process.errors);
      assertEquals(socket.count("READY=1"), 1);
      assert(socket.lines.some((line) => line.startsWith("STATUS=")), socket.lines.join("; "));
    });
  }
}

test("the executable leaves a watchdog alone that is meant for another process", async () => {
  await using executable = await Executable.create("a plain user");
  const path = `${executable.directory}/notify`;
  await using socket = new NotifySocket(path);
  await Deno.chmod(path, 0o777);
  const process = executable.start([], [
    `NOTIFY_SOCKET=${path}`,
    "WATCHDOG_USEC=100000",
    `WATCHDOG_PID=${Deno.pid}`,
  ]);
  await using _ = process;
  await eventually("READY=1", () => socket.count("READY=1") === 1);
  process.signal("SIGTERM");
  await process.status();
  assertEquals(socket.count("WATCHDOG=1"), 0);
});
