/** What the program says about connections that its workers have, in both IP families. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { stringify } from "@std/yaml";
import { TcpServer } from "./support/drivers/tcp_peers.ts";
import { UdpPeer } from "./support/drivers/udp_peer.ts";
import { LoopbackRelay } from "./support/stages/loopback_relay.ts";

const PORT = 18_090;
const CONNECTIONS = 12;
const ENDPOINTS = ["127.80.35.1", "127.80.35.2", "::1"];
const SERVICES = [
  { name: "web", clusterIPs: ["127.80.36.1", "fd00:80:36::1"], protocol: "TCP" },
  { name: "dns", clusterIPs: ["127.80.36.2", "fd00:80:36::2"], protocol: "UDP" },
  { name: "other", clusterIPs: ["127.80.36.3", "fd00:80:36::3"], protocol: "TCP" },
] as const;

/** The servers of an IP family have a port of their own, since `::1` has the stand-ins as well. */
function portOf(addressType: string): number {
  return addressType === "IPv4" ? PORT : PORT + 1;
}

function manifest(): string {
  const objects = SERVICES.flatMap(({ name, clusterIPs, protocol }) => [
    {
      ...{ apiVersion: "v1", kind: "Service", metadata: { name } },
      spec: {
        ...{ clusterIP: clusterIPs[0], clusterIPs: [...clusterIPs] },
        ...{ ipFamilies: ["IPv4", "IPv6"], ipFamilyPolicy: "RequireDualStack" },
        sessionAffinity: name === "web" ? "ClientIP" : "None",
        ports: [{ name: "main", port: PORT, protocol }],
      },
    },
    ...["IPv4", "IPv6"].map((addressType) => ({
      ...{ apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice", addressType },
      metadata: {
        name: `${name}-${addressType.toLowerCase()}`,
        labels: { "kubernetes.io/service-name": name },
      },
      ports: [{ name: "main", port: portOf(addressType), protocol }],
      endpoints: ENDPOINTS.filter((each) => each.includes(":") === (addressType === "IPv6"))
        .map((address) => ({ addresses: [address] })),
    })),
  ]);
  return objects.map((each) => `---\n${stringify(each)}`).join("");
}

/** Where a Service is served, and its number of connections. */
async function findService(relay: LoopbackRelay, family: string, name: string) {
  const { families } = await relay.status();
  const found = families.find((each) => each.family === family);
  const service = found?.services.find((each) => each.name === `default/${name}:main`);
  const [at] = service?.addresses ?? [];
  if (!at) throw new Error(`Cannot find ${name} in ${JSON.stringify(families)}`);
  return { hostname: at.address, port: at.port, connections: service?.connections };
}

/** Opens a connection. Returns it and the name of the server. */
async function open(at: Deno.ConnectOptions): Promise<[Deno.TcpConn, string]> {
  const connection = await Deno.connect(at);
  await connection.write(new TextEncoder().encode("?"));
  const buffer = new Uint8Array(99);
  const count = await connection.read(buffer) ?? 0;
  return [connection, new TextDecoder().decode(buffer.subarray(0, count))];
}

const CARRIERS = [
  { name: "workers", args: ["--userspace-workers=2"] },
  { name: "data processes", args: ["--userspace-workers=2", "--userspace-engine=syscalls"] },
];

for (const { name, args } of CARRIERS) {
  Deno.test(`status and explain speak for the connections of all ${name}, also of IPv6`, (t) =>
    speakForAll(t, name, args));
}

async function speakForAll(t: Deno.TestContext, name: string, args: readonly string[]) {
  await using peers = new globalThis.AsyncDisposableStack();
  for (const hostname of ENDPOINTS) {
    const port = portOf(hostname.includes(":") ? "IPv6" : "IPv4");
    peers.use(
      TcpServer.named(hostname.includes(":") ? `[${hostname}]` : hostname, { hostname, port }),
    );
    peers.use(UdpPeer.open({ answer: () => "yes", hostname, port }));
  }
  await using relay = await LoopbackRelay.start({
    manifests: { "services.yaml": manifest() },
    args,
  });
  const { families } = await relay.settled();
  for (const { summary } of families) assertStringIncludes(summary ?? "", `; 2 ${name} forward`);

  for (const [family, other] of [["IPv4", "IPv6"], ["IPv6", "IPv4"]] as const) {
    await t.step(family, async () => {
      const isV6 = family === "IPv6";
      const [web, dns] = [
        await findService(relay, family, "web"),
        await findService(relay, family, "dns"),
      ];
      const opened = await Promise.all(Array.from({ length: CONNECTIONS }, () => open(web)));
      const names = new Set(opened.map(([, name]) => name));
      assertEquals(names.size, 1, "the workers know one client together");
      await using client = UdpPeer.open({ hostname: isV6 ? "::1" : "127.0.0.1" });
      await client.send("?", dns);
      await client.next();
      const counts = async (of: string) => [
        (await findService(relay, of, "web")).connections,
        (await findService(relay, of, "dns")).connections,
      ];
      await relay.until(
        "status counts",
        async () => `${await counts(family)}` === `${CONNECTIONS},1`,
      );
      assertEquals((await counts(other))[0], 0);
      const vip = SERVICES[0].clusterIPs[isV6 ? 1 : 0];
      const from = isV6 ? "::1" : "127.0.0.1";
      const text = await relay.explain(from, isV6 ? `[${vip}]:${PORT}` : `${vip}:${PORT}`);
      const endpoint = `${[...names]}:${portOf(family)}`;
      assertStringIncludes(text, `this client is bound to ${endpoint}, for another`);
      for (const [connection] of opened) connection.close();
      await relay.until("they are closed", async () => (await counts(family))[0] === 0);
    });
  }

  await t.step("Services of IPv6 with one port do not share a socket", async () => {
    const [web, other] = [
      await findService(relay, "IPv6", "web"),
      await findService(relay, "IPv6", "other"),
    ];
    assertEquals([web.hostname, other.hostname, web.port === other.port], ["::1", "::1", false]);
  });
}
