/** Data processes keep connections while kube-relay ends and starts again, and are never in doubt whose they are. */
import { fileURLToPath } from "node:url";
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { stringify } from "@std/yaml";
import { SILENT_LOGGER } from "../lib/log/silent_logger.ts";
import { encodeFrame } from "../lib/net/message_frames.ts";
import { systemClock } from "../lib/os/clock.ts";
import { systemCommandRunner } from "../lib/os/command_runner.ts";
import { DATA_PROCESS_FLAGS } from "../lib/os/data_process_protocol.ts";
import { DataProcesses } from "../lib/os/data_processes.ts";
import { testClientHello } from "./support/builders/client_hello.ts";
import { ask, echoes, TcpServer, writeFully } from "./support/drivers/tcp_peers.ts";
import { unusedPort } from "./support/drivers/unused_port.ts";
import { eventually } from "./support/eventually.ts";
import { LoopbackRelay } from "./support/stages/loopback_relay.ts";

const ARGS = ["--userspace-engine=syscalls", "--userspace-workers=2", "--drain-timeout=60s"];
const CONNECTIONS = 40;

/** A relay with the Service `web` on a node port, and an echo server behind it. */
async function startStage(args: readonly string[] = ARGS, annotations = {}) {
  const server = TcpServer.start(async (connection) => {
    await connection.readable.pipeTo(connection.writable).catch(() => {});
  });
  const nodePort = unusedPort();
  const relay = await LoopbackRelay.start({
    manifests: { "web.yaml": manifest(server.port, nodePort, annotations) },
    args,
  });
  const at = { hostname: "127.0.0.1", port: nodePort };
  return {
    ...{ relay, server, at },
    sockets: () => socketsIn(relay.dataFolder),
    /** Process ids in order. */
    pids: () => pidsIn(relay.dataFolder),
    async [Symbol.asyncDispose]() {
      await relay[Symbol.asyncDispose]();
      await server[Symbol.asyncDispose]();
    },
  };
}

function manifest(port: number, nodePort: number, annotations: Record<string, string>): string {
  const objects = [
    {
      ...{ apiVersion: "v1", kind: "Service", metadata: { name: "web", annotations } },
      spec: { type: "NodePort", clusterIP: "127.80.55.1", ports: [{ port: 80, nodePort }] },
    },
    {
      ...{ apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice", addressType: "IPv4" },
      metadata: { name: "web-1", labels: { "kubernetes.io/service-name": "web" } },
      ports: [{ port }],
      endpoints: [{ addresses: ["127.0.0.1"] }],
    },
  ];
  return objects.map((each) => `---\n${stringify(each)}`).join("");
}

function socketsIn(folder: string): readonly string[] {
  return [...Deno.readDirSync(folder)].map(({ name }) => name)
    .filter((name) => name.endsWith(".sock"));
}

function pidsIn(folder: string): readonly number[] {
  return socketsIn(folder).map((name) => Number(/-(\d+)\.sock$/.exec(name)![1]))
    .sort((a, b) => a - b);
}

/** Connections that stay open, and new ones all the time. */
class Load implements AsyncDisposable {
  readonly kept: Deno.TcpConn[] = [];
  answered = 0;
  failed = 0;
  #isOver = false;
  readonly #loop: Promise<void>;

  private constructor(private readonly at: Deno.ConnectOptions) {
    this.#loop = this.#run();
  }

  static async start(at: Deno.ConnectOptions): Promise<Load> {
    const load = new Load(at);
    for (let count = 0; count < CONNECTIONS; count++) load.kept.push(await Deno.connect(at));
    assertEquals(await load.alive(), CONNECTIONS);
    return load;
  }

  /** How many of those that stay open still get an answer. */
  async alive(): Promise<number> {
    const alive = await Promise.all(this.kept.map(echoes));
    return alive.filter((isAlive) => isAlive).length;
  }

  async #run(): Promise<void> {
    while (!this.#isOver) {
      const connection = await Deno.connect(this.at).catch(() => undefined);
      if (connection && await echoes(connection)) this.answered++;
      else this.failed++;
      connection?.close();
    }
  }

  async [Symbol.asyncDispose]() {
    this.#isOver = true;
    await this.#loop;
    for (const each of this.kept) each.close();
  }
}

Deno.test("no connection is cut when kube-relay is killed and starts again, nor is a new one refused", async () => {
  await using stage = await startStage();
  const { relay } = stage;
  const { families: [family] } = await relay.settled();
  assertStringIncludes(family!.summary!, "; 2 data processes forward");
  const pids = stage.pids();
  assertEquals(pids.length, 2);
  await using load = await Load.start(stage.at);
  for (let round = 0; round < 2; round++) {
    await relay.restart("SIGKILL");
    await relay.settled();
    assertStringIncludes(relay.log, "Taking over data processes");
    const { answered } = load;
    await eventually("more is served", () => load.answered > answered + 5);
  }
  assertEquals([await load.alive(), load.failed], [CONNECTIONS, 0]);
  assertEquals(stage.pids(), pids);
  await relay.until("status counts what was there before", async () => {
    const { families: [family] } = await relay.status();
    return (family!.services[0]?.connections ?? 0) >= CONNECTIONS;
  });
});

Deno.test("a restart by SIGUSR2 cuts nothing, and what was deleted meanwhile is served no more", async () => {
  await using stage = await startStage();
  const { relay } = stage;
  await relay.settled();
  const pids = stage.pids();
  await using load = await Load.start(stage.at);
  await relay.restart("SIGUSR2");
  await relay.settled();
  assertEquals([await load.alive(), load.failed], [CONNECTIONS, 0]);
  assertEquals(stage.pids(), pids);
  await relay.restart("SIGUSR2", ARGS, () => Deno.remove(`${relay.folder}/manifests/web.yaml`));
  await relay.settled();
  await eventually("nothing listens", () => refuses(stage.at));
  assertEquals(await load.alive(), CONNECTIONS, "as with conntrack, they may finish");
});

Deno.test("a data process that is killed is replaced, and its connections no longer count for limits", async () => {
  await using stage = await startStage(ARGS, { "kube-relay.io/max-connections": `${CONNECTIONS}` });
  const { relay } = stage;
  await relay.settled();
  const [first, second] = stage.pids();
  const connect = () =>
    Promise.all(Array.from({ length: CONNECTIONS + 10 }, async () => {
      const connection = await Deno.connect(stage.at);
      return { connection, served: await echoes(connection) };
    }));
  const opened = await connect();
  const served = (all: Awaited<ReturnType<typeof connect>>) =>
    all.filter(({ served }) => served).length;
  assertEquals(served(opened), CONNECTIONS, "the limit holds over both processes");
  signal(first!, "KILL");
  await relay.until("it is replaced", () => {
    const pids = stage.pids();
    return pids.length === 2 && !pids.includes(first!) && pids.includes(second!);
  });
  await relay.settled();
  const still = await Promise.all(opened.map(({ connection }) => echoes(connection)));
  const kept = still.filter((isServed) => isServed).length;
  assert(kept > 0 && kept < CONNECTIONS, `${kept} of ${CONNECTIONS} are left`);
  await relay.until("it serves", async () => {
    const more = await connect();
    for (const { connection } of more) connection.close();
    return served(more) === CONNECTIONS - kept;
  });
  for (const { connection } of opened) connection.close();
});

Deno.test("processes that were taken over keep clients and figures, have another user, and end with a stop", async () => {
  const port = unusedPort();
  const nodePort = unusedPort();
  const addresses = ["127.0.0.1", "127.80.55.2"];
  await using servers = new globalThis.AsyncDisposableStack();
  for (const hostname of addresses) servers.use(TcpServer.named(hostname, { hostname, port }));
  const text = manifest(port, nodePort, {})
    .replace("type: NodePort", "type: NodePort\n  sessionAffinity: ClientIP")
    .replace("- addresses:", `- addresses: ["${addresses[1]}"]\n  - addresses:`);
  await using relay = await LoopbackRelay.start({ manifests: { "web.yaml": text }, args: ARGS });
  await relay.settled();
  const at = { hostname: "127.0.0.1", port: nodePort };
  const first = await ask(at);
  const idle = await Deno.connect(at);
  await relay.restart("SIGKILL");
  await relay.settled();
  await relay.until("status counts what was open before", async () => {
    const { families: [family] } = await relay.status();
    return family!.services[0]?.connections === 1;
  });
  const pids = () => pidsIn(relay.dataFolder);
  const [killed, kept] = pids();
  signal(killed!, "KILL");
  await eventually("it is replaced", () => pids().length === 2 && !pids().includes(killed!));
  await relay.settled();
  for (let turn = 0; turn < 20; turn++) {
    assertEquals(await ask(at).catch(() => first), first, "all processes know the client");
  }
  if (Deno.uid() === 0) {
    const { stdout } = await new Deno.Command("ps", { args: ["-o", "uid=", "-p", `${kept}`] })
      .output();
    assert(Number(new TextDecoder().decode(stdout)) > 0, "it is not root");
  }
  const last = pids();
  idle.close();
  await relay.stop();
  await eventually("they have ended", () => !last.some(isRunning));
});

Deno.test("another engine does without the data processes, which listen no more", async () => {
  await using stage = await startStage();
  const { relay } = stage;
  await relay.settled();
  await using load = await Load.start(stage.at);
  const [killed, kept] = stage.pids();
  await relay.restart("SIGKILL", ARGS, () => Promise.resolve(signal(killed!, "KILL")));
  await relay.settled();
  await eventually("one is kept, the other is replaced", () => {
    const pids = stage.pids();
    return pids.length === 2 && pids.includes(kept!);
  });
  const alive = await load.alive();
  assert(alive > 0 && alive < CONNECTIONS, `${alive} of ${CONNECTIONS}`);
  const pids = stage.pids();
  await relay.restart("SIGUSR2", ["--userspace-engine=deno"]);
  const { families: [family] } = await relay.settled();
  assertEquals(family!.summary!.includes("data process"), false);
  const { answered } = load;
  await eventually("Deno forwards", () => load.answered > answered + 5);
  assertEquals(await load.alive(), alive);
  for (const each of load.kept.splice(0)) each.close();
  await eventually("they have ended", () => !pids.some(isRunning));
});

Deno.test("data processes with other settings listen no more, and end with their last connection", async () => {
  await using stage = await startStage();
  const { relay } = stage;
  await relay.settled();
  const pids = stage.pids();
  const load = await Load.start(stage.at);
  await relay.restart("SIGKILL", [...ARGS, "--udp-timeout=7s"]);
  await relay.settled();
  await eventually("others serve", () => stage.pids().length === 4);
  assertEquals(await load.alive(), CONNECTIONS);
  const { answered } = load;
  await eventually("new connections are served", () => load.answered > answered + 5);
  await relay.restart("SIGKILL");
  await relay.settled();
  const later = load.answered;
  await eventually("new ones are served with the former settings", () => load.answered > later + 5);
  assertEquals(relay.log.includes("Taking over"), false, "those that listen no more are not used");
  assertEquals(await load.alive(), CONNECTIONS);
  await load[Symbol.asyncDispose]();
  await relay.until("they have ended", () => !pids.some(isRunning));
});

Deno.test("kube-relays with control sockets in one folder share no data process", async () => {
  await using stage = await startStage();
  const { relay } = stage;
  await relay.settled();
  const pids = stage.pids();
  for (const [name, isKnown] of [["control", true], ["other", false]] as const) {
    const control = `--control-socket=${relay.folder}/${name}.sock`;
    const cleanup = relay.another(control, "--cleanup", "--dry-run");
    const lines = new Set<string>();
    await cleanup.status();
    try {
      for (;;) lines.add(await cleanup.nextLine());
    } catch {
      // All were read.
    }
    const listed = pids.map((pid) =>
      lines.has(`would remove data process ${pid} and its connections`)
    );
    assertEquals(listed, pids.map(() => isKnown), cleanup.errors);
  }
});

Deno.test("a stop ends data processes and their files, and so does a cleanup without kube-relay", async () => {
  await using stage = await startStage();
  const { relay } = stage;
  await relay.settled();
  const pids = stage.pids();
  await relay.restart("SIGTERM");
  await eventually("they have ended", () => !pids.some(isRunning));
  await relay.settled();
  const later = stage.pids();
  assertEquals(later.some((pid) => pids.includes(pid)), false);
  const other = relay.another();
  assertEquals((await other.status()).code !== 0, true, "two never share them");
  assertEquals([later.every(isRunning), stage.pids()], [true, later]);
  await relay.kill();
  assertEquals(later.every(isRunning), true);
  const edges = { clock: systemClock, commands: systemCommandRunner, logger: SILENT_LOGGER };
  const folder = relay.dataFolder;
  const preview = await DataProcesses.cleanUp(edges, folder, { isDry: true });
  assertEquals([preview.ended.toSorted(), later.every(isRunning)], [later, true]);
  const { ended, failed } = await DataProcesses.cleanUp(edges, folder, { isDry: false });
  assertEquals([ended.toSorted(), failed], [later, []]);
  await eventually("they have ended", () => !later.some(isRunning));
  assertEquals(await Deno.stat(folder).catch(() => "gone"), "gone");
});

/** What a client of the socket sends that is none of ours. */
const HOSTILE: Readonly<Record<string, (key: string) => Uint8Array>> = {
  "no frame": () => new TextEncoder().encode("GET / HTTP/1.1\r\n\r\n"),
  "a frame that is too long": () => new Uint8Array([0, 1, 0, 1, 123]),
  "a frame that is not JSON": () => new Uint8Array([0, 0, 0, 1, 123]),
  "bytes that are no text": () => new Uint8Array([0, 0, 0, 2, 255, 254]),
  "null": () => encodeFrame(null),
  "a wrong key": () => encodeFrame({ kind: "end", key: "0" }),
  "no kind": (key) => encodeFrame({ key }),
  "an end while it is in use": (key) => encodeFrame({ kind: "end", key }),
  "a message before the greeting": () => encodeFrame(["IPv4", ["ask", 1, { kind: "close" }]]),
};

Deno.test("a data process closes hostile connections to its socket, and serves on", async (t) => {
  await using stage = await startStage();
  const { relay } = stage;
  await relay.settled();
  await using load = await Load.start(stage.at);
  const pids = stage.pids();
  const path = `${relay.dataFolder}/${stage.sockets()[0]}`;
  const key = await Deno.readTextFile(`${relay.dataFolder}/key`);
  for (const [name, bytes] of Object.entries(HOSTILE)) {
    await t.step(name, async () => {
      using connection = await Deno.connect({ transport: "unix", path });
      await connection.write(bytes(key));
      const buffer = new Uint8Array(1000);
      // It may answer once that it is busy.
      for (let count: number | null = 0; count !== null;) {
        count = await connection.read(buffer).catch(() => null);
      }
    });
  }
  await t.step("many that say nothing", async () => {
    const silent = await Promise.all(
      Array.from({ length: 40 }, () => Deno.connect({ transport: "unix", path })),
    );
    const ends = silent.map((each) => each.read(new Uint8Array(1)).catch(() => null));
    assertEquals(await Promise.all(ends), silent.map(() => null), "all are closed in time");
    for (const each of silent) each.close();
  });
  await t.step("a wrong key while no kube-relay uses it", async () => {
    await relay.kill();
    for (const kind of ["end", "retire", "serve"]) {
      using connection = await Deno.connect({ transport: "unix", path });
      await connection.write(encodeFrame({ kind, key: `${key}0`, drainTimeoutMs: 0 }));
      assertEquals(await connection.read(new Uint8Array(9)), null);
    }
  });
  assertEquals([await load.alive(), load.failed], [CONNECTIONS, 0]);
  assertEquals(stage.pids(), pids);
  assertEquals(pids.every(isRunning), true);
});

Deno.test("a process that may not load libc says so in plain text", async () => {
  const worker = fileURLToPath(new URL("../backends/userspace_worker.ts", import.meta.url));
  const flags = DATA_PROCESS_FLAGS.filter((flag) => flag !== "--allow-ffi");
  const program = [Deno.execPath(), "run", "-q", "--unstable-net", "--no-check", ...flags, worker];
  const refusal = await DataProcesses.tryOut({ commands: systemCommandRunner }, program);
  assertEquals(refusal?.split(" (")[0], "Cannot load libc");
});

/** Whether nobody takes a connection. */
async function refuses(at: Deno.ConnectOptions): Promise<boolean> {
  const connection = await Deno.connect(at).catch(() => undefined);
  connection?.close();
  return connection === undefined;
}

function signal(pid: number, name: string): boolean {
  return new Deno.Command("kill", { args: [`-${name}`, `${pid}`], stderr: "null" }).outputSync()
    .success;
}

function isRunning(pid: number): boolean {
  return signal(pid, "0");
}

/** Services that share an address, each for a server name after it. */
function shared(port: number, endpoint: number, names: readonly string[]): string {
  return names.map((name, index) => {
    const annotations = { "kube-relay.io/sni": `${name}.test` };
    const sharer = manifest(endpoint, 30_000 + index, annotations);
    return sharer.replaceAll("web", name).replace("127.80.55.1", `127.80.55.${20 + index}`)
      .replace("port: 80\n", `port: ${port}\n`).replace(
        "type: NodePort",
        "externalIPs: [127.80.55.9]",
      )
      .replace(/\n *nodePort: \d+/, "");
  }).join("");
}

Deno.test("data processes read server names, also while and after kube-relay is away", async () => {
  await using server = TcpServer.start(async (connection) => {
    await connection.readable.pipeTo(connection.writable).catch(() => {});
  });
  const port = unusedPort();
  await using relay = await LoopbackRelay.start({
    manifests: { "shared.yaml": shared(port, server.port, ["one", "two"]) },
    args: ARGS,
  });
  await relay.settled();
  const opened: Deno.TcpConn[] = [];
  /** Whether all of it comes back, more than a ClientHello and a buffer hold. */
  const isServed = async (name: string) => {
    const connection = await Deno.connect({ hostname: "127.80.55.9", port });
    opened.push(connection);
    const hello = testClientHello({ names: [`${name}.test`], fragment: 100 });
    const sent = new Uint8Array([...hello, ...Array(100_000).fill(7)]);
    const back = new Uint8Array(sent.length);
    void writeFully(connection, sent).catch(() => {});
    for (let filled = 0; filled < sent.length;) {
      const count = await connection.read(back.subarray(filled)).catch(() => null);
      if (count === null) return false;
      filled += count;
    }
    assertEquals(back, sent);
    return true;
  };
  const served = async () => [await isServed("one"), await isServed("two"), await isServed("new")];
  assertEquals(await served(), [true, true, false]);
  await Deno.writeTextFile(
    `${relay.folder}/manifests/shared.yaml`,
    shared(port, server.port, ["one", "new"]),
  );
  await relay.restart("SIGKILL");
  await relay.settled();
  assertEquals(await served(), [true, false, true]);
  assertEquals(await echoes(opened[0]!), true);
  for (const each of opened) each.close();
});
