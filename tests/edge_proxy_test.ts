/**
 * The examples of docs/edge_proxy.md run on loopback in one process, with one more Service whose annotations
 * have mistakes.
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { askControl } from "../lib/tools/control/control_client.ts";
import { permissionFlags } from "../lib/os/permissions.ts";
import { parseIpAddress } from "../lib/net/ip_address.ts";
import {
  parseProxyHeader,
  proxyHeaderV2,
} from "../backends/userspace/proxy_protocol/proxy_header.ts";
import { programFile } from "./support/drivers/program_file.ts";
import { ask, readToEnd, TcpServer, writeFully } from "./support/drivers/tcp_peers.ts";
import { testClientHello } from "./support/builders/client_hello.ts";
import { UdpPeer } from "./support/drivers/udp_peer.ts";
import { readPage } from "./support/docs/command_pages.ts";
import { extractBlocks } from "./support/docs/markdown_blocks.ts";
import { LoopbackRelay } from "./support/stages/loopback_relay.ts";

const EXAMPLES = ["edge_web.yaml", "edge_dns.yaml", "edge_database.yaml", "edge_tls.yaml"];
const MAIN = programFile(new URL("../main.ts", import.meta.url));
const [WEB, DNS, DATABASE, API] = [
  { hostname: "127.80.0.18", port: 8080 },
  { hostname: "127.80.0.19", port: 5353 },
  { hostname: "127.80.0.20", port: 5432 },
  { hostname: "127.80.0.22", port: 8080 },
];

const MISTAKEN = `apiVersion: v1
kind: Service
metadata:
  name: mistaken
  annotations:
    kube-relay.io/balance: fastest
    kube-relay.io/max-connections: "7"
spec:
  clusterIP: 127.80.0.21
  ports: [{ port: 8080 }]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: mistaken-1
  labels: { kubernetes.io/service-name: mistaken }
addressType: IPv4
endpoints: [{ addresses: [127.80.18.1] }]
ports: [{ port: 8080 }]
`;

/** Services that claim server names of the example for TLS. */
const CLAIMANTS = [["default", "second", "shop.example.com, second.example.com"], [
  ...["evil", "thief", "new.example.com"],
]].map(([namespace, name, sni], index) =>
  `apiVersion: v1
kind: Service
metadata:
  namespace: ${namespace}
  name: ${name}
  annotations: { kube-relay.io/sni: "${sni}" }
spec:
  clusterIP: 127.80.0.${26 + index}
  externalIPs: [127.80.0.25]
  ports: [{ port: 8443 }]
`
).join("---\n");
const TLS = { hostname: "127.80.0.25", port: 8443 };

/** The text of each example by the name of its file. */
async function readExamples(): Promise<Readonly<Record<string, string>>> {
  const folder = new URL("../examples/manifests/", import.meta.url);
  const read = (name: string) => Deno.readTextFile(new URL(name, folder));
  return Object.fromEntries(
    await Promise.all(EXAMPLES.map(async (name) => [name, await read(name)])),
  );
}

Deno.test("docs/edge_proxy.md has the Services of the examples", async () => {
  const examples = Object.values(await readExamples()).join("");
  const page = await readPage("docs/edge_proxy.md");
  const blocks = extractBlocks(page).filter(({ language }) => language === "yaml");
  assertEquals(blocks.length, examples.match(/^kind: Service$/gm)?.length);
  for (const { text } of blocks) assertStringIncludes(examples, text);
  for (const name of EXAMPLES) assertStringIncludes(page, name);
});

async function endpointsOf(relay: LoopbackRelay, wanted: string) {
  const [{ services } = { services: [] }] = (await relay.status()).families;
  return services.find(({ name }) => name === wanted)?.endpoints ?? [];
}

Deno.test("the examples of an edge proxy do what their page says", async (t) => {
  const received: Uint8Array[] = [];
  await using _one = TcpServer.named("one", { hostname: "127.80.18.1", port: 8080 });
  await using _two = TcpServer.named("two", { hostname: "127.80.18.2", port: 8080 });
  const answer = (text: string) => text.slice(-3);
  await using three = UdpPeer.open({ answer, hostname: "127.80.18.3", port: DNS!.port });
  await using four = UdpPeer.open({ answer, hostname: "127.80.18.4", port: DNS!.port });
  await using _database = TcpServer.start(async (connection) => {
    const buffer = new Uint8Array(100);
    for (let count; (count = await connection.read(buffer)) !== null;) {
      received.push(buffer.slice(0, count));
    }
    await connection.write(new TextEncoder().encode("row"));
  }, { hostname: "127.80.18.5", port: 5432 });
  const api = { status: 200, isAsked: false };
  await using six = TcpServer.start(async (connection) => {
    const buffer = new Uint8Array(1024);
    const text = new TextDecoder().decode(buffer.subarray(0, await connection.read(buffer) ?? 0));
    const isCheck = text.startsWith("GET /ready HTTP/1.1\r\nHost: 127.80.18.6:8080\r\n");
    if (isCheck) api.isAsked = true;
    const answer = isCheck ? `HTTP/1.1 ${api.status} X\r\n\r\n` : "six";
    await writeFully(connection, new TextEncoder().encode(answer));
  }, { hostname: "127.80.18.6", port: 8080 });
  await using _shop = TcpServer.named("shop", { hostname: "127.80.18.6", port: 8443 });
  await using _site = TcpServer.named("site", { hostname: "127.80.18.7", port: 8443 });
  await using relay = await LoopbackRelay.start({
    manifests: {
      ...{ ...await readExamples(), "mistaken.yaml": MISTAKEN, "z_claimants.yaml": CLAIMANTS },
    },
  });
  const status = await relay.settled();

  await t.step("the web server with twice the weight gets twice the connections", async () => {
    const held: Deno.TcpConn[] = [];
    const names: string[] = [];
    for (let count = 0; count < 12; count++) {
      const connection = await Deno.connect(WEB!);
      held.push(connection);
      await connection.write(new TextEncoder().encode("?"));
      const buffer = new Uint8Array(9);
      names.push(new TextDecoder().decode(buffer.subarray(0, await connection.read(buffer) ?? 0)));
    }
    assertEquals(names.filter((name) => name === "two").length, 8, `${names}`);
    for (const connection of held) connection.close();
  });

  await t.step("a DNS client stays with its server, which gets a header", async () => {
    await using client = UdpPeer.open();
    for (const text of ["one", "two", "six"]) {
      await client.send(text, DNS!);
      assertEquals((await client.next()).text, text);
    }
    const [most, none] = [three.pending, four.pending].sort().toReversed();
    assertEquals([most, none], [3, 0]);
  });

  await t.step(
    "a DNS client behind dnsdist stays with its server, which learns its address",
    async () => {
      await using dnsdist = UdpPeer.open({ hostname: "127.0.0.8" });
      const before = [three.pending, four.pending];
      for (let count = 0; count < 3; count++) {
        const header = proxyHeaderV2({
          source: { address: parseIpAddress("198.51.100.7"), port: 53_000 + count },
          destination: { address: parseIpAddress("203.0.113.1"), port: 53 },
        }, "UDP");
        await dnsdist.send(new Uint8Array([...header, ...new TextEncoder().encode("sun")]), DNS!);
        assertEquals((await dnsdist.next()).text, "sun");
      }
      const got = [three, four].map(({ pending }, index) => pending - before[index]!);
      assertEquals(got.toSorted(), [0, 3]);
      await dnsdist.send("no header", DNS!);
      const line = 'kube_relay_userspace_proxy_header_errors_total{ip_family="IPv4"} 1';
      await relay.until("the metric counts", async () => (await relay.scrape()).includes(line));
    },
  );

  await t.step("the database gets the address that the load balancer sent", async () => {
    using connection = await Deno.connect(DATABASE!);
    const text = "PROXY TCP4 198.51.100.7 203.0.113.1 1234 5432\r\nselect";
    await writeFully(connection, new TextEncoder().encode(text));
    await connection.closeWrite();
    assertEquals((await readToEnd(connection)).text, "row");
    const bytes = new Uint8Array(received.flatMap((each) => [...each]));
    const header = parseProxyHeader(bytes);
    assert(header.kind === "complete");
    assertEquals(header.carried?.source as unknown, { address: "198.51.100.7", port: 1234 });
    assertEquals(new TextDecoder().decode(bytes.subarray(header.length)), "select");
  });

  await t.step(
    "the name that a TLS client asks for decides, and no Service takes it over",
    async () => {
      for (
        const [name, answer] of [
          ["shop.example.com", "shop"],
          ["a.shop.example.com", "shop"],
          ["new.example.com", "site"],
          ["second.example.com", ""],
        ] as const
      ) {
        using connection = await Deno.connect(TLS);
        await writeFully(connection, testClientHello({ names: [name] }));
        await connection.closeWrite();
        assertEquals((await readToEnd(connection).catch(() => ({ text: "" }))).text, answer, name);
      }
      const [{ services, quarantined } = { services: [], quarantined: [] }] = status.families;
      const { settings } = services.find(({ name }) => name === "default/edge-shop:https")!;
      assertEquals(settings, ["sni shop.example.com, *.shop.example.com"]);
      const reasons = quarantined.map(({ reason }) => reason).sort();
      for (
        const [index, part] of [
          "127.80.0.25:8443/TCP belongs to default/edge-site:https/TCP: a Service of another namespace",
          "for shop.example.com at 127.80.0.25:8443/TCP belong to default/edge-shop:https/TCP: neither",
        ].entries()
      ) assertStringIncludes(reasons[index] ?? "", part);
      assertEquals(reasons.length, 2);
      for (const reason of reasons) assertStringIncludes(relay.log, reason);
      const explain = (...more: string[]) =>
        relay.explain("192.0.2.7", "127.80.0.25:8443", ...more);
      const shop = await explain("--sni", "A.shop.example.com.");
      assertStringIncludes(
        shop,
        "FORWARDED to 127.80.18.6:8443, the only endpoint of default/edge-shop",
      );
      assertStringIncludes(shop, "connections for *.shop.example.com lead to default/edge-shop");
      assertStringIncludes(shop, "looked just now: the sockets are as they should be");
      assertStringIncludes(
        await explain("--sni", "shop.example.com"),
        "default/second also claims",
      );
      assertStringIncludes(await explain(), "the only endpoint of default/edge-site");
      const checked = await new Deno.Command(Deno.execPath(), {
        args: [
          ...["run", ...permissionFlags(), "--unstable-net", "--quiet", "--no-check", MAIN],
          ...["check", `${relay.folder}/manifests`, "--mode=userspace"],
          `--control-socket=${relay.folder}/control.sock`,
        ],
      }).output();
      const text = new TextDecoder().decode(checked.stdout);
      for (const reason of reasons) assertStringIncludes(text, reason);
    },
  );

  await t.step("status names the settings", () => {
    const [{ services } = { services: [] }] = status.families;
    const settings = Object.fromEntries(services.map(({ name, settings }) => [name, settings]));
    assertEquals(settings["default/edge-dns:dns"], [
      "balance source-hash",
      "send-proxy-protocol-udp v2",
      "accept-proxy-protocol-udp-from 127.0.0.8/32",
      "max-connections-per-client 100",
    ]);
    assertEquals(settings["default/mistaken"], [
      "max-connections 7",
      "annotation kube-relay.io/balance has an invalid value",
    ]);
  });

  await t.step("a server without a listener is unhealthy, wherever one looks", async () => {
    const endpoints = () => endpointsOf(relay, "default/edge-api:http");
    await relay.until("127.80.18.7 is unhealthy", async () => {
      const [, seven] = await endpoints();
      return seven?.health?.state === "unhealthy" && api.isAsked;
    });
    for (let count = 0; count < 4; count++) assertEquals(await ask(API!), "six");
    const [, seven] = await endpoints();
    assertEquals(seven?.health?.reason, "connection refused");
    const explained = await relay.explain("192.0.2.7", "127.80.0.22:8080");
    assert(/127\.80\.18\.7:8080.*left out: unhealthy for \d+s: connection refused/.test(explained));
    const unhealthy = 'kube_relay_userspace_endpoints{ip_family="IPv4",state="unhealthy"} 1';
    const page = await relay.until("one is counted", async () => {
      const text = await relay.scrape();
      return text.includes(unhealthy) && text;
    });
    assert(/health_checks_total\{ip_family="IPv4",result="failed"\} [1-9]/.test(page), page);
    const words = "Endpoint is unhealthy: new connections skip it";
    await relay.until("it is logged", () => relay.log.includes(words));
    const changes = await askControl(`${relay.folder}/control.sock`, "/changes");
    const texts = changes.entries.filter(({ kind }) => kind === "health")
      .flatMap(({ lines }) => lines.map(({ text }) => text));
    const change =
      "Endpoint 127.80.18.7:8080 of default/edge-api:http/TCP unhealthy: connection refused";
    assert(texts.includes(change), texts.join("\n"));
    const dump = await (await new Deno.Command(Deno.execPath(), {
      args: [
        ...["run", ...permissionFlags(), "--unstable-net", "--quiet", "--no-check", MAIN],
        ...["dump", "-", `--control-socket=${relay.folder}/control.sock`],
      ],
    }).output());
    assertStringIncludes(new TextDecoder().decode(dump.stdout), "connection refused");
  });

  await t.step("health is ignored while no server is healthy", async () => {
    api.status = 503;
    const notes = await relay.until("both are unhealthy", async () => {
      const [six] = await endpointsOf(relay, "default/edge-api:http");
      const [{ services } = { services: [] }] = (await relay.status()).families;
      const { settings = [] } = services.find(({ name }) => name === "default/edge-api:http") ?? {};
      return six?.health?.reason === "503 instead of 200-299" && settings;
    });
    assertEquals(notes.at(-1), "health is ignored: 0 of 2 endpoints are healthy");
    assertEquals(await ask(API!), "six");
    assert(six.accepted > 0);
  });

  await t.step("explain names the settings", async () => {
    const text = await relay.explain("192.0.2.7", "127.80.0.18:8080");
    assertStringIncludes(text, "by annotations of the Service: ");
    assertStringIncludes(text, "slow-start 30s");
    const hashed = await relay.explain("192.0.2.7", "127.80.0.19:5353/UDP");
    assertStringIncludes(hashed, "by source-hash");
  });

  await t.step("a mistake is logged once, and the Service is served", async () => {
    assertEquals(await ask({ hostname: "127.80.0.21", port: 8080 }), "one");
    const lines = relay.log.split("\n").filter((line) => line.includes("kube-relay.io/balance"));
    assertEquals(lines.length, 1, relay.log);
    for (const part of ["default/mistaken", "fastest", "one of round-robin, least-connections"]) {
      assertStringIncludes(lines[0]!, part);
    }
  });

  await t.step("a connection without its header is counted", async () => {
    using one = await Deno.connect(DATABASE!);
    await writeFully(one, new TextEncoder().encode("GET / HTTP/1.1\r\n"));
    await readToEnd(one).catch(() => {});
    const line = 'kube_relay_userspace_proxy_header_errors_total{ip_family="IPv4"} 2';
    await relay.until("the metric counts", async () => (await relay.scrape()).includes(line));
  });
});
