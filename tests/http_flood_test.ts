/**
 * Clients that ask a running kube-relay for its pages as fast as they can, and what the Services that
 * it forwards notice of it.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { servicePort, writeServiceManifest } from "./bench/service_manifest.ts";
import { DEADLINE_FACTOR } from "./support/deadline_factor.ts";
import { LineProcess } from "./support/drivers/line_process.ts";
import { LoopbackRelay } from "./support/stages/loopback_relay.ts";
import { ask, TcpServer } from "./support/drivers/tcp_peers.ts";

/** As many as an attack had that made a Service wait for 3 s. */
const CLIENTS = 774;
const REQUESTS_OF_EACH = 50;
const CLUSTER_IP = "127.61.0.1";
const WEB = { hostname: CLUSTER_IP, port: servicePort("TCP") };

/** Exchanges through the Service, and the time for all of them: what each waited for was 3 s and more. */
const EXCHANGES = 100;
const WITHIN_MS = 30_000 * DEADLINE_FACTOR;
/** How far memory may grow: garbage, which the next collection takes away. */
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

const FLOODS: Readonly<Record<string, readonly string[]>> = {
  "/metrics": ["/metrics"],
  "every other page": ["/metrics/slis", "/configz", "/statusz", "/flagz", "/debug/flags/v", "/x"],
};

for (const [name, paths] of Object.entries(FLOODS)) {
  Deno.test(`${CLIENTS} clients that ask for ${name} without end hold up no Service`, async () => {
    await using pod = TcpServer.named("pod");
    const web = { name: "web", clusterIp: CLUSTER_IP, protocol: "TCP" } as const;
    const manifest = writeServiceManifest({
      ...web,
      endpoints: ["127.0.0.1"],
      endpointPort: pod.port,
    });
    await using relay = await LoopbackRelay.start({
      manifests: { "web.yaml": manifest },
      args: ["--service-counters", "--profiling"],
    });
    await relay.settled();
    for (let count = 0; count < EXCHANGES; count++) await ask(WEB);
    const before = await residentOf(relay.pid);
    await using clients = startClients(relay.metricsPort, paths);
    assertEquals(await clients.nextLine(), "asking");
    const start = performance.now();
    for (let count = 0; count < EXCHANGES; count++) assertEquals(await ask(WEB), "pod");
    const tookMs = performance.now() - start;
    assert(tookMs < WITHIN_MS, `${EXCHANGES} exchanges took ${Math.round(tookMs)} ms`);
    // The health port has bounds of its own.
    const health = await fetch(`http://127.0.0.1:${relay.healthPort}/livez`);
    assertEquals([health.status, (await health.json()).healthy], [200, true]);
    const grown = await residentOf(relay.pid) - before;
    assert(grown < MOST_GROWTH, `memory grew by ${grown} bytes`);
    await clients.kill();
    await relay.until(
      "a scrape is answered",
      async () =>
        (await relay.scrape()).includes('kube_relay_refused_sockets_total{use="metrics"}'),
    );
    assertEquals(await relay.stop(), 0, relay.log);
  });
}
