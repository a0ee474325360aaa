import { assertEquals, assertInstanceOf, assertRejects, assertStringIncludes } from "@std/assert";
import { testStatusReport } from "../../../tests/support/builders/status_reports.ts";
import { askControl, ControlError, requestStatus } from "./control_client.ts";
import { BadQuestion, startControlServer } from "./control_server.ts";
import { withFolder } from "../../../tests/support/with_folder.ts";

const REPORT = testStatusReport();

function start(path: string): ReturnType<typeof startControlServer> {
  return startControlServer({
    path,
    routes: { "/status": () => Promise.resolve(REPORT) },
  });
}

Deno.test("startControlServer() answers status to its owner only", async () => {
  await withFolder(async (folder) => {
    const path = `${folder}/run/control.sock`;
    const server = await start(path);
    assertEquals(await requestStatus(path), REPORT);
    assertEquals((await Deno.stat(path)).mode! & 0o777, 0o600);
    assertEquals((await Deno.stat(`${folder}/run`)).mode! & 0o777, 0o700);
    await server.stop();
    const gone = await assertRejects(() => requestStatus(path), ControlError, "no program listens");
    assertEquals(gone.kind, "not-running");
  });
});

Deno.test("startControlServer() answers nothing but GET /status", async () => {
  await withFolder(async (folder) => {
    const path = `${folder}/control.sock`;
    const server = await start(path);
    using client = Deno.createHttpClient({ proxy: { transport: "unix", path } });
    const statusOf = async (method: string, url: string) => {
      const response = await fetch(url, { method, client });
      await response.body?.cancel();
      return response.status;
    };
    assertEquals(await statusOf("POST", "http://localhost/status"), 405);
    assertEquals(await statusOf("DELETE", "http://localhost/status"), 405);
    assertEquals(await statusOf("GET", "http://localhost/"), 404);
    assertEquals(await statusOf("GET", "http://localhost/status/x"), 404);
    await server.stop();
  });
});

/** A server that keeps its input, and the messages and answers of a client. */
async function withMessages(
  run: (scene: {
    readonly path: string;
    readonly received: readonly unknown[];
    readonly post: (body: BodyInit, url?: string) => Promise<number>;
  }) => Promise<void>,
): Promise<void> {
  await withFolder(async (folder) => {
    const path = `${folder}/control.sock`;
    const received: unknown[] = [];
    const server = await startControlServer({
      path,
      times: { requestMs: 300 },
      routes: { "/status": () => Promise.resolve(REPORT) },
      messages: {
        "/repair": (message) => {
          if (message === "bad") return Promise.reject(new BadQuestion("not that"));
          received.push(message);
          return Promise.resolve({});
        },
      },
    });
    using client = Deno.createHttpClient({ proxy: { transport: "unix", path } });
    const post = async (body: BodyInit, url = "http://localhost/repair") => {
      const response = await fetch(url, { method: "POST", client, body });
      await response.body?.cancel();
      return response.status;
    };
    await run({ path, received, post });
    const ask = await fetch("http://localhost/repair", { client });
    await ask.body?.cancel();
    assertEquals([ask.status, ask.headers.get("allow")], [405, "POST"]);
    await server.stop();
  });
}

Deno.test("startControlServer() accepts a message of a few KB of JSON, and nothing else", () =>
  withMessages(async ({ path, received, post }) => {
    assertEquals(await askControl(path, { route: "/repair", message: { a: 1 } }), {});
    assertEquals(received, [{ a: 1 }]);
    const endless = new ReadableStream<Uint8Array>({
      pull: (controller) => controller.enqueue(new Uint8Array(1024).fill(32)),
    });
    for (
      const body of [
        "",
        "{",
        "{}{}",
        '"bad"',
        `"${"x".repeat(4096)}"`,
        new Uint8Array([0xff, 0xfe]),
        "[".repeat(4000),
      ]
    ) assertEquals(await post(body), 400);
    // What has no end has no length, and is not begun to be read.
    assertEquals(await post(endless).catch(() => 411), 411);
    assertEquals(await post("x".repeat(10_000)).catch(() => 413), 413);
    for (const place of ["status", "dump", "", "repair/", "__proto__", "constructor"]) {
      assertEquals(await post("{}", `http://localhost/${place}`), 405, place);
    }
    assertEquals(received, [{ a: 1 }]);
    assertEquals((await requestStatus(path)).pid, REPORT.pid, "it goes on");
  }));

Deno.test("startControlServer() does not wait for a message that does not arrive", () =>
  withMessages(async ({ path, received }) => {
    const client = await Deno.connect({ transport: "unix", path });
    const head = "POST /repair HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{";
    await client.write(new TextEncoder().encode(head));
    const answer = new Uint8Array(64);
    const length = await client.read(answer) ?? 0;
    assertStringIncludes(new TextDecoder().decode(answer.subarray(0, length)), "HTTP/1.1 408");
    client.close();
    // The next request never ends: the server stops nevertheless.
    const other = await Deno.connect({ transport: "unix", path });
    await other.write(new TextEncoder().encode(head));
    assertEquals(received, []);
    await requestStatus(path);
    other.close();
  }));

Deno.test("startControlServer() stops though a client never reads its answer", async () => {
  await withFolder(async (folder) => {
    const path = `${folder}/control.sock`;
    const version = "v".repeat(16 * 1024 * 1024);
    const server = await startControlServer({
      path,
      routes: { "/status": () => Promise.resolve({ ...REPORT, version }) },
    });
    using client = await Deno.connect({ transport: "unix", path });
    await client.write(new TextEncoder().encode("GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    // The answer has begun, and is more than a socket holds.
    assertEquals(await client.read(new Uint8Array(1)), 1);
    await server.stop();
    await assertRejects(() => requestStatus(path), ControlError, "no program listens");
  });
});

Deno.test("startControlServer() replaces the socket of a dead process", async () => {
  await withFolder(async (folder) => {
    const path = `${folder}/control.sock`;
    // Deno removes the name at which a socket was opened.
    const dead = Deno.listen({ transport: "unix", path: `${folder}/first` });
    await Deno.rename(`${folder}/first`, path);
    dead.close();
    assertEquals((await Deno.lstat(path)).isSocket, true);
    const server = await start(path);
    assertEquals(await requestStatus(path), REPORT);
    await server.stop();
  });
});

Deno.test("startControlServer() refuses the socket of a living process and names it", async () => {
  await withFolder(async (folder) => {
    const path = `${folder}/control.sock`;
    const server = await start(path);
    await assertRejects(() => start(path), ControlError, "process id 4711 is already running");
    assertEquals(await requestStatus(path), REPORT);
    await server.stop();
  });
});

Deno.test("startControlServer() does not take the place of a file", async () => {
  await withFolder(async (folder) => {
    const path = `${folder}/control.sock`;
    await Deno.writeTextFile(path, "precious");
    await assertRejects(() => start(path), ControlError, "the file there is no socket");
    assertEquals(await Deno.readTextFile(path), "precious");
  });
});

const SUCCESSORS: Readonly<Record<string, (path: string) => Promise<() => Promise<void>>>> = {
  "the socket of another kube-relay": async (path) => (await start(path)).stop,
  "a file": async (path) => {
    await Deno.writeTextFile(path, "precious");
    return () => Deno.remove(path);
  },
  "a folder": async (path) => {
    await Deno.mkdir(path);
    return () => Deno.remove(path);
  },
};

for (const [what, put] of Object.entries(SUCCESSORS)) {
  Deno.test(`startControlServer() leaves ${what} that took the place of its socket`, async () => {
    await withFolder(async (folder) => {
      const path = `${folder}/control.sock`;
      const server = await start(path);
      await Deno.remove(path);
      const remove = await put(path);
      const { ino } = await Deno.lstat(path);
      await server.stop();
      assertEquals((await Deno.lstat(path)).ino, ino);
      await remove();
    });
  });
}

Deno.test("requestStatus() passes on why the status could not be made", async () => {
  await withFolder(async (folder) => {
    const path = `${folder}/control.sock`;
    const server = await startControlServer({
      path,
      routes: { "/status": () => Promise.reject(new Error("the backend is gone")) },
    });
    const error: unknown = await requestStatus(path).catch((error) => error);
    assertInstanceOf(error, ControlError);
    assertStringIncludes(error.message, "the backend is gone");
    await server.stop();
  });
});
