import { assertEquals, assertInstanceOf, assertRejects, assertStringIncludes } from "@std/assert";
import { testStatusReport } from "../../../tests/support/builders/status_reports.ts";
import { askControl, ControlError } from "./control_client.ts";
import { startControlServer } from "./control_server.ts";
import { withFolder } from "../../../tests/support/with_folder.ts";

const REPORT = testStatusReport();
const DIFFERENCE = { mode: "nftables", nodeName: "", families: [] } as const;

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
    assertEquals(await askControl(path, "/status"), REPORT);
    assertEquals((await Deno.stat(path)).mode! & 0o777, 0o600);
    assertEquals((await Deno.stat(`${folder}/run`)).mode! & 0o777, 0o700);
    await server.stop();
    const gone = await assertRejects(
      () => askControl(path, "/status"),
      ControlError,
      "no program listens",
    );
    assertEquals(gone.kind, "not-running");
  });
});

Deno.test("startControlServer() has something changed by POST alone, and only for the socket's owner", async () => {
  await withFolder(async (folder) => {
    const path = `${folder}/control.sock`;
    let changes = 0;
    const server = await startControlServer({
      path,
      routes: {
        "/status": () => Promise.resolve(REPORT),
        "POST /difference": () => Promise.resolve({ ...DIFFERENCE, nodeName: `${++changes}` }),
      },
    });
    using client = Deno.createHttpClient({ proxy: { transport: "unix", path } });
    const statusOf = async (method: string, place: string) => {
      const response = await fetch(`http://localhost/${place}`, { method, client });
      await response.body?.cancel();
      return response.status;
    };
    assertEquals(await askControl(path, "POST /difference"), {
      ...DIFFERENCE,
      nodeName: "1",
    });
    assertEquals(await statusOf("GET", "difference"), 404);
    assertEquals(await statusOf("GET", "POST%20/difference"), 404);
    const other = await fetch("http://localhost/difference", { method: "PUT", client });
    assertEquals(await other.text(), "Only GET, POST is answered\n");
    const headers = { origin: "http://localhost" };
    const page = await fetch("http://localhost/difference", { method: "POST", client, headers });
    await page.body?.cancel();
    assertEquals([page.status, changes], [403, 1], "of a web page");
    assertEquals(await statusOf("POST", "difference?service=ns/web"), 400, "it takes no Service");
    for (const place of ["status", "", "difference/", "__proto__", "constructor"]) {
      assertEquals(await statusOf("POST", place), 405, place);
    }
    for (const mode of [0o601, 0o610, 0o660, 0o666]) {
      await Deno.chmod(path, mode);
      assertEquals([await statusOf("POST", "difference"), await statusOf("GET", "status")], [
        403,
        200,
      ]);
    }
    assertEquals(changes, 1);
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
    await assertRejects(() => askControl(path, "/status"), ControlError, "no program listens");
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
    assertEquals(await askControl(path, "/status"), REPORT);
    await server.stop();
  });
});

Deno.test("startControlServer() refuses the socket of a living process and names it", async () => {
  await withFolder(async (folder) => {
    const path = `${folder}/control.sock`;
    const server = await start(path);
    await assertRejects(() => start(path), ControlError, "process id 4711 is already running");
    assertEquals(await askControl(path, "/status"), REPORT);
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

Deno.test("askControl() passes on why the status could not be made", async () => {
  await withFolder(async (folder) => {
    const path = `${folder}/control.sock`;
    const server = await startControlServer({
      path,
      routes: { "/status": () => Promise.reject(new Error("the backend is gone")) },
    });
    const error: unknown = await askControl(path, "/status").catch((error) => error);
    assertInstanceOf(error, ControlError);
    assertStringIncludes(error.message, "the backend is gone");
    await server.stop();
  });
});
