/**
 * Clients whose UDP flows fill the limits of a running kube-relay in userspace mode, and what other
 * clients notice of it.
 */
import { assertEquals } from "@std/assert";
import { testEndpointSlice, testService } from "./support/builders/builders.ts";
import { manifestText, rawObjects } from "./support/builders/raw_objects.ts";
import { ask, TcpServer } from "./support/drivers/tcp_peers.ts";
import { UdpPeer } from "./support/drivers/udp_peer.ts";
import { program, testNeeding } from "./support/requirement.ts";
import { LoopbackRelay } from "./support/stages/loopback_relay.ts";

/** Soft and hard limit of the process: about 270 flows and half as many connections. */
const OPEN_FILES = 500;
/** More clients than the process may have files. */
const TOO_MANY = 600;

const test = testNeeding("running out of open files", [program("prlimit")]);

interface TestPort {
  readonly protocol: "TCP" | "UDP";
  readonly port: number;
  readonly endpointPort: number;
}

/** A Service whose endpoints listen on loopback. */
function service(name: string, clusterIP: string, ports: readonly TestPort[]): string {
  const named = ports.map((port, index) => ({ ...port, name: `p${index}` }));
  return manifestText([
    ...rawObjects(
      "Service",
      testService(name, {
        clusterIP,
        ports: named.map(({ name, protocol, port }) => ({ name, protocol, port })),
      }),
    ),
    ...rawObjects(
      "EndpointSlice",
      testEndpointSlice(name, {
        endpoints: [{ addresses: ["127.0.0.1"] }],
        ports: named.map(({ name, protocol, endpointPort: port }) => ({ name, protocol, port })),
      }),
    ),
  ]);
}

/** Clients with a socket each. */
class Clients implements AsyncDisposable {
  readonly #peers: UdpPeer[] = [];

  /** Sends one datagram each from new sockets. */
  async send(count: number, to: { hostname: string; port: number }): Promise<readonly UdpPeer[]> {
    const peers = Array.from({ length: count }, () => UdpPeer.open());
    this.#peers.push(...peers);
    for (const peer of peers) await peer.send("who?", to);
    return peers;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const peer of this.#peers) await peer[Symbol.asyncDispose]();
  }
}

/** Sends from new clients until flows were refused, or ended for new ones. */
async function flood(
  relay: LoopbackRelay,
  clients: Clients,
  to: { hostname: string; port: number },
): Promise<void> {
  const before = await refusedFlows(relay);
  await relay.until("the limit of flows is reached", async () => {
    await clients.send(TOO_MANY, to);
    return await refusedFlows(relay) > before;
  });
}

/**
 * Most clients get an answer to their only datagram. Some may not: one in eight datagrams is dropped
 * instead of ending a flow that was not answered.
 */
async function assertServed(relay: LoopbackRelay, clients: readonly UdpPeer[]): Promise<void> {
  const answered = () => clients.filter(({ pending }) => pending > 0).length;
  await relay.until("most clients are answered", () => answered() >= clients.length * 2 / 3);
}

async function refusedFlows(relay: LoopbackRelay): Promise<number> {
  const text = await relay.scrape();
  return Number(/^kube_relay_refused_sockets_total\{use="flow"\} (\d+)$/m.exec(text)?.[1]);
}

for (const workers of [1, 2]) {
  test(`a flood of UDP clients of two Services leaves both to new clients (workers: ${workers})`, async () => {
    await using endpoint = UdpPeer.open({ answer: () => "pod" });
    await using clients = new Clients();
    const places = ["127.51.0.1", "127.51.0.2"].map((hostname) => ({ hostname, port: 5353 }));
    const ports = [{ protocol: "UDP", port: 5353, endpointPort: endpoint.port }] as const;
    await using relay = await LoopbackRelay.start({
      openFiles: OPEN_FILES,
      args: [`--userspace-workers=${workers}`],
      manifests: Object.fromEntries(
        places.map(({ hostname }, at) => [`s${at}.json`, service(`s${at}`, hostname, ports)]),
      ),
    });
    await relay.settled();
    for (const place of places) await flood(relay, clients, place);
    for (const place of places) {
      await assertServed(relay, await clients.send(30, place));
    }
    assertEquals(await relay.stop(), 0, relay.log);
  });

  test(`UDP clients of one port of a Service leave its other ports to others (workers: ${workers})`, async () => {
    await using endpoint = UdpPeer.open({ answer: () => "pod" });
    await using server = TcpServer.named("pod");
    await using clients = new Clients();
    const hostname = "127.51.1.1";
    const [dns, other] = [{ hostname, port: 5353 }, { hostname, port: 5354 }];
    const udp = { protocol: "UDP", endpointPort: endpoint.port } as const;
    await using relay = await LoopbackRelay.start({
      openFiles: OPEN_FILES,
      args: [`--userspace-workers=${workers}`],
      manifests: {
        "dns.json": service("dns", hostname, [
          { ...udp, port: dns.port },
          { ...udp, port: other.port },
          { protocol: "TCP", port: dns.port, endpointPort: server.port },
        ]),
      },
    });
    await relay.settled();
    await flood(relay, clients, dns);
    await assertServed(relay, await clients.send(30, other));
    for (let count = 0; count < 20; count++) assertEquals(await ask(dns), "pod", "TCP");
    assertEquals(await relay.stop(), 0, relay.log);
  });
}
