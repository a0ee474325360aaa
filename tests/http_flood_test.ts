/**
 * Tests clients that request pages of a running kube-relay as fast as they can, and their effect on
 * forwarded Services. How many pages a turn of the event loop has is counted in
 * `lib/os/http_acceptor_test.ts`.
 */
import { assert, assertEquals } from "@std/assert";
import { testEndpointSlice, testService } from "./support/builders/builders.ts";
import { manifestText, rawObjects } from "./support/builders/raw_objects.ts";
import { LineProcess } from "./support/drivers/line_process.ts";
import { LoopbackRelay } from "./support/stages/loopback_relay.ts";
import { ask, TcpServer } from "./support/drivers/tcp_peers.ts";
import { unusedPort } from "./support/drivers/unused_port.ts";

/** As many as an attack had that made a Service wait for 3 s. */
const CLIENTS = 774;
const REQUESTS_OF_EACH = 50;
const WEB = { hostname: "127.61.0.1", port: 8080 };

/** Exchanges through the Service. */
const EXCHANGES = 40;
/** The growth of memory that is allowed: garbage that the next collection frees. */
const MOST_GROWTH = 192 * 1024 * 1024;

function startClients(port: number, paths: readonly string[]): LineProcess {
  const program = new URL("./support/drivers/pipelining_clients.ts", import.meta.url).pathname;
  return new LineProcess(Deno.execPath(), [
    ...["run", "--no-prompt", "--no-check", "--quiet", "--allow-net", program],
    ...[String(CLIENTS), String(REQUESTS_OF_EACH), String(port), ...paths],
  ]);
}

/** Bytes of a process that are in RAM. */
async function residentOf(pid: number): Promise<number> {
  const { stdout } = await new Deno.Command("ps", { args: ["-o", "rss=", "-p", String(pid)] })
    .output();
  return Number(new TextDecoder().decode(stdout)) * 1024;
}

/** The ports at which a kube-relay answers HTTP. */
interface Pages {
  readonly relay: LoopbackRelay;
  readonly healthCheckNodePort: number;
}

/** The requested paths, and the port. */
const FLOODS: Readonly<
  Record<string, { readonly paths: readonly string[]; readonly port: (pages: Pages) => number }>
> = {
  "/metrics": { paths: ["/metrics"], port: ({ relay }) => relay.metricsPort },
  "every other page of the metrics port": {
    paths: ["/metrics/slis", "/configz", "/statusz", "/flagz", "/debug/flags/v", "/x"],
    port: ({ relay }) => relay.metricsPort,
  },
  "/debug/pprof": {
    paths: ["/debug/pprof/profile", "/debug/pprof/heap?debug=1", "/debug/pprof/trace?seconds=9"],
    port: ({ relay }) => relay.metricsPort,
  },
  "the status page": {
    paths: ["/", "/?filter=web", "/page.js", "/sections"],
    port: ({ relay }) => relay.metricsPort,
  },
  "the health port": { paths: ["/healthz", "/livez"], port: ({ relay }) => relay.healthPort },
  "a health check node port": {
    paths: ["/"],
    port: ({ healthCheckNodePort }) => healthCheckNodePort,
  },
};

/** A Service on loopback with a health check node port. */
function webManifest(endpointPort: number, healthCheckNodePort: number): string {
  const service = testService("web", {
    type: "LoadBalancer",
    externalTrafficPolicy: "Local",
    healthCheckNodePort,
    clusterIP: WEB.hostname,
    ports: [{ name: "a", port: WEB.port }],
  });
  const slice = testEndpointSlice("web", {
    endpoints: ["127.0.0.1"],
    ports: [{ name: "a", protocol: "TCP", port: endpointPort }],
  });
  return manifestText([...rawObjects("Service", service), ...rawObjects("EndpointSlice", slice)]);
}

async function startRelay(manifests: Readonly<Record<string, string>>): Promise<LoopbackRelay> {
  const relay = await LoopbackRelay.start({
    manifests,
    args: [
      "--service-counters",
      "--profiling",
      "--status-page",
      "--nodeport-addresses=127.0.0.1/32",
    ],
  });
  await relay.settled();
  return relay;
}

Deno.test(`${CLIENTS} clients that ask for pages endlessly keep no Service from answering`, async (t) => {
  await using pod = TcpServer.named("pod");
  const healthCheckNodePort = unusedPort();
  const web = webManifest(pod.port, healthCheckNodePort);
  await using relay = await startRelay({ "web.json": web });
  for (let count = 0; count < EXCHANGES; count++) await ask(WEB);
  const before = await residentOf(relay.pid);
  for (const [name, { paths, port }] of Object.entries(FLOODS)) {
    await t.step(name, async () => {
      await using clients = startClients(port({ relay, healthCheckNodePort }), paths);
      assertEquals(await clients.nextLine(), "asking");
      for (let count = 0; count < EXCHANGES; count++) assertEquals(await ask(WEB), "pod");
      const grown = await residentOf(relay.pid) - before;
      assert(grown < MOST_GROWTH, `memory grew by ${grown} bytes`);
    });
  }
  // The health port has bounds of its own.
  const health = await fetch(`http://127.0.0.1:${relay.healthPort}/livez`);
  assertEquals([health.status, (await health.json()).healthy], [200, true]);
  const refused = (use: string) => `kube_relay_refused_sockets_total{use="${use}"}`;
  await relay.until(
    "a scrape is answered",
    async () => (await relay.scrape()).includes(refused("metrics")),
  );
  assertEquals(await relay.stop(), 0, relay.log);
});
