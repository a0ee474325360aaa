/**
 * Attacks a running kube-relay with few open files through clients and tenants. Everything that
 * they can open is limited, and other clients are served meanwhile.
 */
import { assert, assertEquals } from "@std/assert";
import { testEndpointSlice, testService } from "./support/builders/builders.ts";
import { LoopbackRelay } from "./support/stages/loopback_relay.ts";
import { manifestText, rawObjects } from "./support/builders/raw_objects.ts";
import { isMissing, program } from "./support/requirement.ts";
import { ask, TcpServer } from "./support/drivers/tcp_peers.ts";
import { unusedPort } from "./support/drivers/unused_port.ts";

/** Soft and hard limit of the process. */
const OPEN_FILES = 500;
/** More of anything than the process may have open. */
const TOO_MANY = 700;
/** Ports of one Service: more than the process may have open. */
const TOO_MANY_PORTS = 1500;
/** The addresses of the machine are looked at every 10 s, which takes a file. */
const ONE_LOOK_MS = 11_000;
const BETWEEN_CHECKS_MS = 20;

const WEB = { hostname: "127.50.0.1", port: 8080 };
const HELD = { hostname: "127.50.0.2", port: 8080 };
const HELD_UDP = { hostname: "127.50.0.3", port: 5353 };
const LATE = { hostname: "127.50.0.5", port: 8080 };

/** A Service with one endpoint on this machine. */
function service(
  name: string,
  { clusterIP, ports, endpointPort, spec = {} }: {
    readonly clusterIP: string;
    readonly ports: readonly { name: string; port: number; protocol?: "TCP" | "UDP" }[];
    readonly endpointPort: number;
    readonly spec?: Parameters<typeof testService>[1];
  },
): string {
  return manifestText([
    ...rawObjects("Service", testService(name, { clusterIP, ports, ...spec })),
    ...rawObjects(
      "EndpointSlice",
      testEndpointSlice(name, {
        endpoints: [{ addresses: ["127.0.0.1"], nodeName: "here" }],
        ports: ports.map(({ name, protocol = "TCP" }) => ({ name, protocol, port: endpointPort })),
      }),
    ),
  ]);
}

/** Connections that send nothing, or only `text`. */
async function connect(
  address: { hostname: string; port: number },
  text = "",
): Promise<Deno.TcpConn[]> {
  const connections: Deno.TcpConn[] = [];
  for (let count = 0; count < TOO_MANY; count++) {
    const connection = await Deno.connect(address);
    connections.push(connection);
    if (text !== "") await connection.write(new TextEncoder().encode(text)).catch(() => {});
  }
  return connections;
}

/** UDP clients that have sent one datagram. */
async function sendDatagrams(to: { hostname: string; port: number }): Promise<Deno.DatagramConn[]> {
  const sockets: Deno.DatagramConn[] = [];
  for (let count = 0; count < TOO_MANY; count++) {
    const socket = Deno.listenDatagram({ transport: "udp", hostname: "127.0.0.1", port: 0 });
    sockets.push(socket);
    await socket.send(new TextEncoder().encode("who?"), { transport: "udp", ...to });
  }
  return sockets;
}

/** Checks again and again until the addresses have been looked at, and leaves time for other work. */
async function duringOneLook(check: () => Promise<void>): Promise<void> {
  for (const start = performance.now(); performance.now() - start < ONE_LOOK_MS;) {
    await check();
    await new Promise((resolve) => setTimeout(resolve, BETWEEN_CHECKS_MS));
  }
}

/** All parts that serve other clients still answer. */
async function assertServes(relay: LoopbackRelay, during: string): Promise<void> {
  const web = async () => await ask(WEB).catch(() => undefined) === "pod";
  await relay.until(`the Service is served (${during})`, web);
  for (const [port, path] of [[relay.healthPort, "livez"], [relay.metricsPort, "metrics"]]) {
    await relay.until(`/${path} is answered (${during})`, async () => {
      const response = await fetch(`http://127.0.0.1:${port}/${path}`).catch(() => undefined);
      await response?.body?.cancel();
      return response?.ok;
    });
  }
  await relay.status();
}

Deno.test({
  name: "kube-relay serves other clients when clients and Services ask for all of its open files",
  ignore: isMissing("running out of open files", [program("prlimit")]),
  async fn(t) {
    await using pod = TcpServer.named("pod");
    const one = [{ name: "a", port: 8080 }];
    const endpointPort = pod.port;
    const healthCheckNodePort = unusedPort();
    const held = { clusterIP: HELD.hostname, ports: one, endpointPort };
    const heldUdp = {
      clusterIP: HELD_UDP.hostname,
      ports: [{ name: "a", port: HELD_UDP.port, protocol: "UDP" as const }],
      endpointPort,
    };
    const checked = {
      ...held,
      clusterIP: "127.50.0.6",
      spec: {
        type: "LoadBalancer",
        externalTrafficPolicy: "Local",
        healthCheckNodePort,
      } as const,
    };
    await using relay = await LoopbackRelay.start({
      openFiles: OPEN_FILES,
      args: ["--nodeport-addresses=127.0.0.0/8", "--hostname-override=here"],
      manifests: {
        "web.json": service("web", { clusterIP: WEB.hostname, ports: one, endpointPort }),
        "held.json": service("held", held),
        "held-udp.json": service("held-udp", heldUdp),
        "checked.json": service("checked", checked),
      },
    });
    await relay.settled();
    const manyPorts = Array.from(
      { length: TOO_MANY_PORTS },
      (_, index) => ({ name: `p${index}`, port: 2000 + index }),
    );
    const many = { clusterIP: "127.50.0.4", ports: manyPorts, endpointPort };
    const open: { close(): void }[] = [];
    const here = (port: number) => ({ hostname: "127.0.0.1", port });
    const attacks: Readonly<Record<string, () => Promise<readonly { close(): void }[]>>> = {
      "idle connections to the health port": () => connect(here(relay.healthPort)),
      "requests to the metrics port that never end": () =>
        connect(here(relay.metricsPort), "GET /metrics HTTP/1.1\r\nHost: x\r\nX: "),
      "idle connections to a health check node port": () => connect(here(healthCheckNodePort)),
      "idle clients of one Service": () => connect(HELD),
      "UDP clients of one Service": () => sendDatagrams(HELD_UDP),
      "a Service with more ports than files": async () => {
        await Deno.writeTextFile(`${relay.folder}/manifests/many.json`, service("many", many));
        await relay.until("most of its ports are refused", async () => {
          const { families } = await relay.status();
          const quarantined = families.flatMap(({ quarantined }) => quarantined);
          return quarantined.length > TOO_MANY_PORTS - OPEN_FILES;
        });
        return [];
      },
    };
    for (const [name, attack] of Object.entries(attacks)) {
      await t.step(name, async () => {
        open.push(...await attack());
        await assertServes(relay, name);
      });
    }
    await t.step("all at once, while the machine's addresses are looked at", async () => {
      await duringOneLook(() => assertServes(relay, "all at once"));
      const late = { clusterIP: LATE.hostname, ports: one, endpointPort };
      await Deno.writeTextFile(`${relay.folder}/manifests/late.json`, service("late", late));
      await relay.until(
        "a new Service is served",
        async () => await ask(LATE).catch(() => undefined) === "pod",
      );
    });
    await t.step("it is counted", async () => {
      const text = await relay.scrape();
      for (
        const use of ["healthz", "metrics", "service_health", "connection", "flow", "listener"]
      ) {
        const [, count] = new RegExp(
          `^kube_relay_refused_sockets_total\\{use="${use}"\\} (\\d+)$`,
          "m",
        ).exec(text) ?? [];
        assert(Number(count) > 0, `refused for ${use}: ${count}`);
      }
    });
    for (const each of open) each.close();
    assertEquals(await relay.stop(), 0, relay.log);
    assert(!relay.log.includes("EMFILE") && !relay.log.includes("os error 24"), relay.log);
  },
});

Deno.test({
  name: "kube-relay survives a time without free files, and continues as before",
  ignore: isMissing("a limit of open files that is lowered", [program("prlimit")]),
  async fn() {
    await using pod = TcpServer.named("pod");
    const web = {
      clusterIP: WEB.hostname,
      ports: [{ name: "a", port: WEB.port }],
      endpointPort: pod.port,
    };
    await using relay = await LoopbackRelay.start({
      manifests: { "web.json": service("web", web) },
    });
    await relay.settled();
    using through = await Deno.connect(WEB);
    const exchange = async () => {
      await through.write(new TextEncoder().encode("who?"));
      const buffer = new Uint8Array(16);
      return new TextDecoder().decode(buffer.subarray(0, await through.read(buffer) ?? 0));
    };
    assertEquals(await exchange(), "pod");
    await setOpenFiles(relay.pid, "1:");
    const late = service("late", { ...web, clusterIP: LATE.hostname });
    await Deno.writeTextFile(`${relay.folder}/manifests/late.json`, late);
    const clients: Deno.TcpConn[] = [];
    for (let count = 0; count < 30; count++) {
      clients.push(await Deno.connect(WEB));
      for (const port of [relay.healthPort, relay.metricsPort]) {
        clients.push(await Deno.connect({ hostname: "127.0.0.1", port }));
      }
    }
    await duringOneLook(async () =>
      assertEquals(await exchange(), "pod", "a connection that is open goes on")
    );
    for (const client of clients) client.close();
    await setOpenFiles(relay.pid, "1000:");
    await assertServes(relay, "afterwards");
    await relay.until(
      "a new Service is served",
      async () => await ask(LATE).catch(() => undefined) === "pod",
    );
    const { log } = relay;
    assertEquals(await relay.stop(), 0, log);
    assert(!log.includes("nothing caught"), log);
  },
});

/** Sets the soft limit of a process. */
async function setOpenFiles(pid: number, limit: string): Promise<void> {
  const args = ["--pid", String(pid), `--nofile=${limit}`];
  const { success } = await new Deno.Command("prlimit", { args }).output();
  assert(success, `Cannot set the limit of process ${pid}`);
}
