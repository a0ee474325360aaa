/** Data processes keep connections while kube-relay ends and starts again, and are never in doubt whose they are. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { stringify } from "@std/yaml";
import { TcpServer } from "./support/drivers/tcp_peers.ts";
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
    pids: () => dataProcesses(relay.folder),
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

/** Process ids by index. */
function dataProcesses(folder: string): readonly number[] {
  return [...Deno.readDirSync(`${folder}/data`)]
    .flatMap(({ name }) => /^\d+-(\d+)\.sock$/.exec(name)?.[1] ?? [])
    .map(Number).sort((a, b) => a - b);
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

async function echoes(connection: Deno.TcpConn): Promise<boolean> {
  try {
    await connection.write(new TextEncoder().encode("x"));
    return await connection.read(new Uint8Array(9)) === 1;
  } catch {
    return false;
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
