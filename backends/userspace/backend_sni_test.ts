import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { createServer, type TLSSocket } from "node:tls";
import type { AddressInfo } from "node:net";
import { parseCidr } from "../../lib/net/cidr.ts";
import { OpenFiles } from "../../lib/os/open_files.ts";
import { tryParseServerNameClaim } from "../../lib/net/server_name.ts";
import type { EdgeSettings } from "../../lib/proxy/edge_settings.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { testClientHello } from "../../tests/support/builders/client_hello.ts";
import {
  testForward,
  type TestServicePlan,
  testServicePlan,
} from "../../tests/support/builders/service_plans.ts";
import { createTestCertificateAuthority } from "../../tests/support/builders/test_certificates.ts";
import {
  isRefused,
  readToEnd,
  TcpServer,
  writeFully,
} from "../../tests/support/drivers/tcp_peers.ts";
import { unusedPort } from "../../tests/support/drivers/unused_port.ts";
import { eventually } from "../../tests/support/eventually.ts";
import { isMissing, program } from "../../tests/support/requirement.ts";
import { WatchedWorkers } from "../../tests/support/stages/watched_workers.ts";
import { TestUserspaceBackend } from "../../tests/support/stages/userspace_backend.ts";

const VIP = "127.96.41.1";
const [SHOP, BLOG, WILD] = ["shop.example.com", "blog.example.com", "*.example.com"];
const LOOPBACK = [parseCidr("127.0.0.0/8")];
const HEADER = "PROXY TCP4 192.0.2.7 192.0.2.1 51000 443\r\n";

/** A Service that shares an address by these names; without names, it takes the rest. */
function sharer(
  name: string,
  port: number,
  { sni, edge, ...more }: TestServicePlan & { readonly sni?: string },
): ServicePlan {
  const claims = sni?.split(",").map((each) => tryParseServerNameClaim(each)!);
  const settings: EdgeSettings = { ...edge, ...(claims && { sni: claims }) };
  const clusterIp = `127.96.42.${name.charCodeAt(0)}`;
  return testServicePlan({
    ...{ name, port, clusterIp, externalIps: [VIP], ...more },
    ...(Object.keys(settings).length > 0 && { edge: settings }),
  });
}

/** A server that answers with its name and everything that it got. */
function echo(name: string): TcpServer {
  return TcpServer.start(async (connection) => {
    const chunks: number[] = [];
    const buffer = new Uint8Array(65_536);
    for (let count; (count = await connection.read(buffer)) !== null;) {
      chunks.push(...buffer.subarray(0, count));
    }
    await writeFully(connection, new TextEncoder().encode(`${name} `));
    await writeFully(connection, new Uint8Array(chunks));
  });
}

/** Sends bytes in pieces of this size. Returns the answer, one character for each byte. */
async function exchange(port: number, bytes: Uint8Array, piece = bytes.length): Promise<string> {
  using connection = await Deno.connect({ hostname: VIP, port });
  connection.setNoDelay();
  try {
    for (let at = 0; at < bytes.length; at += piece) {
      await writeFully(connection, bytes.subarray(at, at + piece));
    }
    await connection.closeWrite();
    let text = "";
    const buffer = new Uint8Array(65_536);
    for (let count; (count = await connection.read(buffer)) !== null;) {
      text += latin(buffer.subarray(0, count));
    }
    return text;
  } catch {
    return "";
  }
}

function latin(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
}

function bytesOf(...parts: readonly (string | Uint8Array)[]): Uint8Array {
  return new Uint8Array(
    parts.flatMap((part) => [...typeof part === "string" ? new TextEncoder().encode(part) : part]),
  );
}

Deno.test("UserspaceBackend sends each connection to the Service that has its server name, untouched", async (t) => {
  await using shop = echo("shop");
  await using wild = echo("wild");
  await using rest = echo("rest");
  await using test = new TestUserspaceBackend();
  const port = unusedPort();
  const named = [
    sharer("shop", port, { sni: SHOP, to: [shop.endpoint] }),
    sharer("wild", port, { sni: `${WILD},other.test`, to: [wild.endpoint] }),
  ];
  const hello = (name: string, fragment?: number) =>
    testClientHello({ names: [name], ...(fragment && { fragment }) });
  const cases: readonly (readonly [what: string, bytes: Uint8Array, to: string, piece?: number])[] =
    [
      ["a name", hello(SHOP), "shop"],
      ["a name in capitals", hello("SHOP.Example.COM."), "shop"],
      ["a name by its wildcard", hello("x.example.com"), "wild"],
      ["a name two labels below a wildcard", hello("y.x.example.com"), "rest"],
      ["the second name of a Service", hello("other.test"), "wild"],
      ["an unknown name", hello("unknown.test"), "rest"],
      ["no name", testClientHello(), "rest"],
      ["an address as name", hello("192.0.2.1"), "rest"],
      ["no TLS", bytesOf("GET / HTTP/1.1\r\n\r\n"), "rest"],
      ["a name byte by byte", hello(SHOP), "shop", 1],
      ["a name in records of one byte", hello(SHOP, 1), "shop"],
      ["a name and much early data", bytesOf(hello(SHOP), new Uint8Array(100_000)), "shop"],
    ];
  await test.sync([...named, sharer("rest", port, { to: [rest.endpoint] })]);
  for (const [what, bytes, to, piece] of cases) {
    await t.step(`${what} to ${to}`, async () => {
      assert(await exchange(port, bytes, piece) === `${to} ${latin(bytes)}`);
    });
  }
  assertEquals((await test.counters()).serverNameErrors, 0);

  await test.sync(named);
  const nobody = cases.filter(([, , to]) => to === "rest");
  for (const [what, bytes] of nobody) {
    await t.step(`${what} to nobody`, async () => assertEquals(await exchange(port, bytes), ""));
  }
  const errors = async () => (await test.counters()).serverNameErrors;
  assertEquals(await errors(), nobody.length);
  const invalid = bytesOf(hello(SHOP).subarray(0, 50));
  const long = testClientHello({ names: [SHOP], extensions: [[21, Array(17_000).fill(0)]] });
  for (const bytes of [invalid, long, new Uint8Array([22, 3, 1, 0, 0])]) {
    assertEquals(await exchange(port, bytes), "");
  }
  assertEquals(await errors(), nobody.length + 3);
  // As a health check of a load balancer: no error.
  assertEquals(await exchange(port, new Uint8Array(0)), "");
  assertEquals(await errors(), nobody.length + 3);
  const served = await Promise.all(named.map((plan) => test.served(plan)));
  for (const places of served) {
    assertStringIncludes(places.join(), `ExternalIP ${VIP}:${port} serving`);
  }
});

Deno.test("UserspaceBackend follows Services that begin and cease to share an address", async () => {
  await using shop = echo("shop");
  await using blog = echo("blog");
  await using test = new TestUserspaceBackend();
  const port = unusedPort();
  const all = sharer("all", port, { to: [blog.endpoint] });
  const a = sharer("shop", port, { sni: SHOP, to: [shop.endpoint] });
  const b = sharer("blog", port, { sni: BLOG, to: [blog.endpoint] });
  const plain = sharer("shop", port, { to: [shop.endpoint] });
  const swapped = [
    sharer("shop", port, { sni: BLOG, to: [shop.endpoint] }),
    sharer("blog", port, { sni: SHOP, to: [blog.endpoint] }),
  ];
  const { internal, external, externalFromCluster } = sharer("gone", port, {});
  const gone = { internal, external, externalFromCluster };
  const [toShop, toBlog] = [SHOP, BLOG].map((name) => testClientHello({ names: [name] }));
  const ask = async () =>
    (await Promise.all([toShop!, toBlog!].map((bytes) => exchange(port, bytes))))
      .map((answer) => answer.slice(0, 4));
  for (
    const [services, answers, opened] of [
      [[all], ["blog", "blog"], 2],
      [[all, a], ["shop", "blog"], 1],
      [[a, b], ["shop", "blog"], 1],
      [[b], ["", "blog"], 0],
      [swapped, ["blog", "shop"], 1],
      // A Service without endpoints leaves its name to nobody.
      [[{ ...a, ...gone }, all], ["", "blog"], 1],
      [[a], ["shop", ""], 1],
      [[plain], ["shop", "shop"], 0],
    ] as const
  ) {
    const { quarantined, operations } = await test.sync(services);
    assertEquals([quarantined, await ask()], [[], answers as never]);
    // Those of cluster IPs: the shared one stays open all the time.
    assertEquals(operations.openedSockets ?? 0, opened);
  }
  // One that waits goes where the name leads when it comes.
  using waiting = await Deno.connect({ hostname: VIP, port });
  await test.sync([a, b]);
  using late = await Deno.connect({ hostname: VIP, port });
  await writeFully(late, toShop!.subarray(0, 7));
  await writeFully(waiting, toShop!);
  await waiting.closeWrite();
  await test.sync([plain]);
  await writeFully(late, toShop!.subarray(7));
  await late.closeWrite();
  for (const each of [waiting, late]) {
    assertStringIncludes((await readToEnd(each)).text, "shop");
  }
  await test.sync([]);
  assert(await isRefused({ hostname: VIP, port }));
});

Deno.test("UserspaceBackend tells its workers only what changes, and all of it to a new one", async () => {
  await using shop = echo("shop");
  await using blog = echo("blog");
  const workers = new WatchedWorkers();
  await using test = new TestUserspaceBackend({ workers: 1, spawn: workers.spawn });
  const port = unusedPort();
  const services = Array.from(
    { length: 20 },
    (_, index) =>
      sharer("x", port, { name: `s${index}`, sni: `s${index}.test`, to: [blog.endpoint] }),
  );
  await test.sync(services);
  const opened = workers.commanded(0, "open");
  const changed = sharer("x", port, { name: "s7", sni: SHOP, to: [shop.endpoint] });
  const left = sharer("x", port, { name: "s9", externalIps: [], to: [blog.endpoint] });
  const rest = [...services.filter(({ name }) => !["s7", "s9"].includes(name.name)), left];
  await test.sync([...rest, changed]);
  assertEquals([workers.commanded(0, "open") - opened, workers.commanded(0, "leave")], [1, 1]);
  workers.end(0);
  await eventually("another worker runs", () => workers.started === 2 && test.pool?.isRunning(0));
  await test.sync([...rest, changed]);
  const ask = async (name: string) =>
    (await exchange(port, testClientHello({ names: [name] }))).slice(0, 4);
  await eventually("it serves", async () => await ask(SHOP) === "shop");
  assertEquals([await ask("s3.test"), await ask("s7.test"), await ask("s9.test")], [
    "blog",
    "",
    "",
  ]);
});

Deno.test("UserspaceBackend gives a shared socket to a Service with room for it", async () => {
  await using shop = echo("shop");
  await using test = new TestUserspaceBackend({ openFiles: new OpenFiles(256) });
  const port = unusedPort();
  const externalIps = Array.from({ length: 200 }, (_, index) => `127.96.43.${index + 1}`);
  // Without room it comes first, and another one still gets its connections.
  const plans = [
    sharer("large", port, { sni: BLOG, to: [shop.endpoint], externalIps: [...externalIps, VIP] }),
    sharer("shop", port, { sni: SHOP, to: [shop.endpoint] }),
  ];
  const { quarantined } = await test.sync(plans);
  assertEquals(quarantined.map(({ key }) => key), [plans[0]!.key]);
  assertEquals((await exchange(port, testClientHello({ names: [SHOP] }))).slice(0, 4), "shop");
});

Deno.test("UserspaceBackend reports a Service whose endpoints lead back at a shared address only", async () => {
  await using shop = echo("shop");
  await using test = new TestUserspaceBackend();
  const port = unusedPort();
  const external = testForward(`${VIP}:${port}`);
  const looped = { external, externalFromCluster: external };
  const plan = sharer("blog", port, { sni: BLOG, to: [shop.endpoint], ...looped });
  const { quarantined } = await test.sync([
    plan,
    sharer("shop", port, { sni: SHOP, to: [shop.endpoint] }),
  ]);
  assertEquals(quarantined.map(({ key, address }) => [key, address]), [
    [plan.key, `${VIP}:${port}/TCP`],
  ]);
});

Deno.test("UserspaceBackend applies the settings of the Service that a name leads to", async (t) => {
  await using shop = echo("shop");
  await using blog = echo("blog");
  await using test = new TestUserspaceBackend();
  const port = unusedPort();
  const blogHello = testClientHello({ names: [BLOG] });
  const shopHello = testClientHello({ names: [SHOP] });
  const plans = (edge: EdgeSettings, rest: EdgeSettings = {}) => [
    sharer("shop", port, { sni: SHOP, to: [shop.endpoint], edge }),
    sharer("blog", port, { sni: `${BLOG},*`, to: [blog.endpoint], edge: rest }),
    sharer("wild", port, { sni: WILD, to: [shop.endpoint] }),
  ];
  await t.step("a PROXY header for the endpoint precedes the ClientHello", async () => {
    await test.sync(plans({ sendProxy: "v1" }));
    const answer = await exchange(port, shopHello);
    assert(/^shop PROXY TCP4 127\.0\.0\.1 127\.96\.41\.1 \d+ \d+\r\n/.test(answer), answer);
    assert(answer.endsWith(latin(shopHello)));
    assertEquals(await exchange(port, blogHello), `blog ${latin(blogHello)}`);
  });
  await t.step("a PROXY header of a trusted client is read, and required", async () => {
    await test.sync(plans({ acceptProxyFrom: LOOPBACK, sendProxy: "v1" }));
    const withHeader = bytesOf(HEADER, shopHello);
    for (const piece of [withHeader.length, 1]) {
      assertEquals(await exchange(port, withHeader, piece), `shop ${latin(withHeader)}`);
    }
    assertEquals(await exchange(port, shopHello), "");
    assertEquals((await test.counters()).proxyHeaderErrors, 1);
  });
  await t.step("a PROXY header that the Service does not expect is data", async () => {
    for (const hello of [blogHello, testClientHello({ names: ["x.example.com"] })]) {
      const forged = bytesOf(HEADER, hello);
      assertEquals(await exchange(port, forged), `blog ${latin(forged)}`);
    }
  });
  await t.step("limits count no connection without a name", async () => {
    await test.sync(plans({ maxConnections: 1 }));
    using _silent = await Deno.connect({ hostname: VIP, port });
    assertEquals((await exchange(port, shopHello)).slice(0, 4), "shop");
    await eventually("it has ended", async () => {
      const { services } = await test.backend.inspect();
      return services.every(({ connections }) => connections === 0);
    });
    using open = await Deno.connect({ hostname: VIP, port });
    await writeFully(open, shopHello);
    await eventually("it is open", () => shop.open === 1);
    assertEquals(await exchange(port, shopHello), "");
    assertEquals((await exchange(port, blogHello)).slice(0, 4), "blog");
  });
});

const lacksOpenssl = isMissing("openssl s_client", [program("openssl")]);
const authority = await createTestCertificateAuthority();

/** A TLS server that sends its name, with a certificate for a host. */
async function tlsServer(name: string, host: string) {
  const server = createServer(await authority.issue({ commonName: host, dnsNames: [host] }));
  server.on("secureConnection", (socket: TLSSocket) => socket.end(name));
  server.on("tlsClientError", () => {});
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    endpoint: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    [Symbol.asyncDispose]: () => new Promise<void>((resolve) => server.close(() => resolve())),
  };
}

Deno.test("UserspaceBackend passes real TLS clients through to the server with the certificate", async (t) => {
  await using shop = await tlsServer("shop", SHOP!);
  await using blog = await tlsServer("blog", BLOG!);
  await using test = new TestUserspaceBackend();
  const port = unusedPort();
  await test.sync([
    sharer("shop", port, { sni: SHOP!, to: [shop.endpoint] }),
    sharer("blog", port, { sni: BLOG!, to: [blog.endpoint] }),
  ]);
  for (const [hostname, name] of [[SHOP!, "shop"], [BLOG!, "blog"]] as const) {
    await t.step(`Deno.connectTls to ${hostname}`, async () => {
      const connection = await Deno.connect({ hostname: VIP, port });
      using tls = await Deno.startTls(connection, { hostname, caCerts: [authority.cert] });
      assertEquals((await readToEnd(tls as unknown as Deno.TcpConn)).text, name);
    });
    for (const flags of [["-tls1_2"], ["-tls1_3"], ["-tls1_3", "-split_send_frag", "512"]]) {
      await t.step({
        name: `openssl s_client ${flags.join(" ")} to ${hostname}`,
        ignore: lacksOpenssl,
        async fn() {
          const { stdout } = await new Deno.Command("openssl", {
            args: ["s_client", "-connect", `${VIP}:${port}`, "-servername", hostname, ...flags],
            stdin: "null",
            stderr: "null",
          }).output();
          assertStringIncludes(new TextDecoder().decode(stdout), `subject=CN = ${hostname}`);
        },
      });
    }
  }
});
