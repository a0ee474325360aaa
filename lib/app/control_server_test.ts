import { assertEquals, assertInstanceOf, assertRejects, assertStringIncludes } from "@std/assert";
import { ControlError, requestStatus } from "./control_client.ts";
import { startControlServer } from "./control_server.ts";
import type { StatusReport } from "./status_report.ts";

const REPORT: StatusReport = {
  version: "kube-relay v0.1.0",
  pid: 4711,
  startedAt: "2026-01-01T00:00:00.000Z",
  phase: "serving",
  largestEventLoopDelayMs: 3,
  node: { name: "node-1" },
  hostSettings: [],
  sources: [],
  families: [],
};

async function withFolder(run: (folder: string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir();
  try {
    await run(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

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
    const gone = await assertRejects(() => requestStatus(path), ControlError, "nobody listens");
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
    await assertRejects(() => requestStatus(path), ControlError, "nobody listens");
  });
});

Deno.test("startControlServer() replaces the socket of a dead process", async () => {
  await withFolder(async (folder) => {
    const path = `${folder}/control.sock`;
    const dead = Deno.listen({ transport: "unix", path });
    dead.close();
    const server = await start(path);
    assertEquals(await requestStatus(path), REPORT);
    await server.stop();
  });
});

Deno.test("startControlServer() refuses the socket of a living process and names it", async () => {
  await withFolder(async (folder) => {
    const path = `${folder}/control.sock`;
    const server = await start(path);
    await assertRejects(() => start(path), ControlError, "process id 4711 runs already");
    assertEquals(await requestStatus(path), REPORT);
    await server.stop();
  });
});

Deno.test("startControlServer() does not take the place of a file", async () => {
  await withFolder(async (folder) => {
    const path = `${folder}/control.sock`;
    await Deno.writeTextFile(path, "precious");
    await assertRejects(() => start(path), ControlError, "no socket is in its place");
    assertEquals(await Deno.readTextFile(path), "precious");
  });
});

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
