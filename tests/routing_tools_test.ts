/**
 * Tests `explain`, `render` and `diff` for addresses and routes, as command lines: with manifests, a
 * dump, and a running process. The pages show the same texts.
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import type { KubeObject } from "../lib/api/kind.ts";
import { ROUTED_NODE, type RoutedNode } from "../lib/api/kinds/routed_node.ts";
import { ROUTED_SERVICE } from "../lib/api/kinds/routed_service.ts";
import { startControlServer } from "../lib/tools/control/control_server.ts";
import { dumpedRoutingSettings, pickAllowed } from "../lib/tools/dump/collect_dump.ts";
import { CONFIGURATION, DUMPED_ROUTING } from "../lib/tools/dump/dump_schema.ts";
import { compareRouting } from "../lib/tools/diff/node_difference.ts";
import { seeRouting } from "../lib/tools/control/run_tools.ts";
import type { ComparedLayer2, RoutingDifference } from "../lib/routing/compare_layer2.ts";
import { SERVICE_KINDS } from "../lib/app/service/service_subscriptions.ts";
import { type IpAddress, parseIpAddress } from "../lib/net/ip_address.ts";
import { type CommandLineResult, runInProcess } from "./support/drivers/command_line.ts";
import { testDump } from "./support/builders/test_dump.ts";
import { parseManifest } from "./support/docs/deploy_files.ts";
import { readPage } from "./support/docs/command_pages.ts";
import { configurationOf } from "./support/drivers/own_flags.ts";

const EXAMPLE = ["--config=examples/routing.yaml", "--manifests=examples/routing"];

function run(...argv: readonly string[]): Promise<CommandLineResult> {
  return runInProcess(argv);
}

function onNode(name: string): readonly string[] {
  return [...EXAMPLE, `--hostname-override=${name}`];
}

/** A dump of a run with the example's objects. */
async function routingDump(nodeName: string, live: readonly string[]): Promise<string> {
  const objects = parseManifest(
    await Deno.readTextFile("examples/routing/cluster.yaml"),
    "cluster",
  );
  const ofKind = (kind: string) =>
    objects.filter((object) => object.kind === kind) as unknown as readonly KubeObject[];
  const { proxy: { routing } } = await configurationOf(["--config=examples/routing.yaml"]);
  const own = ofKind("Node").find(({ metadata: { name } }) => name === nodeName) as RoutedNode;
  const section = {
    objects: {
      [ROUTED_SERVICE.plural]: ofKind("Service"),
      [ROUTED_NODE.plural]: ofKind("Node"),
    },
    live,
    isDraining: false,
    networks: ["192.0.2.0/24"],
  };
  const dump = JSON.parse(testDump());
  const settings = { ...dump.configuration.proxy, routing: dumpedRoutingSettings(routing, own) };
  return JSON.stringify({
    ...dump,
    configuration: pickAllowed({ ...dump.configuration, proxy: settings }, CONFIGURATION),
    nodeName,
    mode: "nftables",
    objects: {
      ...Object.fromEntries(SERVICE_KINDS.map(({ kind, plural }) => [plural, ofKind(kind)])),
      nodes: [own],
    },
    controllers: { routing: pickAllowed(section, DUMPED_ROUTING) },
  });
}

async function withDump(text: string, use: (path: string) => Promise<void>): Promise<void> {
  const path = await Deno.makeTempFile({ suffix: ".json" });
  try {
    await Deno.writeTextFile(path, text);
    await use(path);
  } finally {
    await Deno.remove(path);
  }
}

Deno.test("explain says which node answers for an address, and why", async () => {
  const { out, code } = await run("explain", "address", "203.0.113.7", ...onNode("node-a"));
  assertEquals(code, 0);
  assertStringIncludes(await readPage("docs/explain.md"), `\`\`\`\n${out}`);
  const service = await run("explain", "address", "shop/web", ...onNode("node-a"));
  assertStringIncludes(service.out, "HAS 203.0.113.7.\n  203.0.113.7  REACHABLE: node-b answers");
  const none = await run("explain", "address", "shop/none", "--json", ...onNode("node-a"));
  assertEquals(JSON.parse(none.out).headline, "UNKNOWN: no Service is called shop/none");
});

Deno.test("explain says whether a node announces a prefix, to whom, and why not", async () => {
  const here = await run("explain", "bgp", "198.51.100.7/32", ...onNode("node-b"));
  assertStringIncludes(await readPage("docs/explain.md"), `\`\`\`\n${here.out}`);
  const { out } = await run("explain", "bgp", "198.51.100.7", "--json", ...onNode("node-a"));
  const report = JSON.parse(out);
  assertEquals(
    [report.isAnnounced, report.headline],
    [false, "NOT ANNOUNCED by node-a: policy Local, and no ready endpoint on this node"],
  );
});

Deno.test("explain refuses a wrong prefix and address, and a cluster without routing", async () => {
  for (const [from, to] of [["bgp", "web"], ["address", "203.0.113.0/28"]] as const) {
    const { code, err } = await run("explain", from, to, ...onNode("node-a"));
    assertEquals(code, 2);
    assertStringIncludes(err, `'${to}': expected`);
  }
  const without = ["--manifests=examples/routing", "--mode=nftables"];
  const { code, err } = await run("explain", "address", "203.0.113.7", ...without);
  assertEquals(code, 1);
  assertStringIncludes(err, "left alone without --routing");
});

Deno.test("render --mode bgp prints BIRD's configuration without passwords", async () => {
  const { out, code } = await run("render", "--mode=bgp", ...onNode("node-b"));
  assertEquals(code, 0);
  assertStringIncludes(out, "route 198.51.100.7/32 blackhole");
  assertStringIncludes(out, "password password_tor;");
  assert(!out.includes("/etc/kube-relay/bgp-password"), out);
  const unknown = await run("render", "--mode=bgp", ...onNode("node-x"));
  assertEquals(unknown.code, 1);
  assertStringIncludes(unknown.err, "there is no Node 'node-x'");
  const off = await run("render", "--mode=bgp", "--manifests=examples/routing");
  assertStringIncludes(off.err, "it is disabled");
  assertEquals((await run("run", "--mode=bgp")).code, 2);
});

Deno.test("a dump gives the same configuration and explanations, and has no password", async () => {
  const text = await routingDump("node-b", ["node-b"]);
  assert(!text.includes("bgp-password"), text);
  await withDump(text, async (path) => {
    const wanted = await run("render", "--mode=bgp", ...onNode("node-b"));
    const found = await run("render", "--mode=bgp", `--from=${path}`);
    assertEquals([found.out, found.err], [wanted.out, ""]);
    const { out } = await run("explain", "address", "203.0.113.7", "--json", `--from=${path}`);
    assertEquals(JSON.parse(out).layer2.candidates[0], {
      node: "node-a",
      obstacle: "kube-relay does not renew its Lease there",
    });
  });
});

/** A process with one session, which may lack the prefix. */
async function withRunning(
  { sent = [], differences = [], layer2 = {} }: {
    readonly sent?: readonly string[];
    readonly differences?: readonly RoutingDifference[];
    readonly layer2?: Partial<ComparedLayer2>;
  },
  use: (socket: string) => Promise<void>,
): Promise<void> {
  const bgp = {
    plan: { localAs: 64_512 } as never,
    backend: {
      sessions: () => Promise.resolve([{ peer: "tor", description: "established since 12:00" }]),
      sentPrefixes: () => Promise.resolve(new Map([["tor", new Set(sent)]])),
      compare: () => Promise.resolve(differences),
    },
  };
  const held = [{ address: parseIpAddress("203.0.113.7"), device: "eth0" }];
  const folder = await Deno.makeTempDir();
  const path = `${folder}/control.sock`;
  const dump = JSON.parse(await routingDump("node-b", ["node-a", "node-b"]));
  const server = await startControlServer({
    path,
    routes: {
      "/routing/seen": () => seeRouting({ bgp, held }),
      "/dump": () => Promise.resolve(dump),
      "/difference": async () => ({
        mode: "nftables",
        nodeName: "node-b",
        families: [{ family: "IPv4", differences: [], quarantined: [] }],
        routing: await compareRouting({
          bgp,
          layer2: { owned: new Set(), others: [], found: new Map(), ...layer2 },
        }),
      }),
    },
  });
  try {
    await use(`--control-socket=${path}`);
  } finally {
    await server.stop();
    await Deno.remove(folder, { recursive: true });
  }
}

Deno.test("explain compares the plan with what the running process sees", () =>
  withRunning({}, async (socket) => {
    const { out, err } = await run("explain", "bgp", "198.51.100.7", socket);
    assertEquals(err, "");
    assertStringIncludes(out, "PLANNED by node-b for 1 peer, but sent to none now");
    assertStringIncludes(out, "external peer): NOT SENT;");
    const address = await run("explain", "address", "203.0.113.7", socket);
    assertStringIncludes(address.out, "this node has it on eth0");
  }));

Deno.test("diff lists the differences of BGP after those of Services", () => {
  const object = {
    object: "announcement",
    name: "198.51.100.7/32 to tor",
    kind: "missing",
  } as const;
  return withRunning({ differences: [object] }, async (socket) => {
    const { out, err, code } = await run("diff", socket);
    assertEquals(err, "");
    assertEquals(code, 3);
    assertStringIncludes(
      out,
      "Routing  1 difference\n\nRouting\n  missing  announcement 198.51.100.7/32 to tor",
    );
    const json = JSON.parse((await run("diff", "--json", socket)).out);
    assertEquals([json.differences, json.routing.differences], [1, [object]]);
  });
});

Deno.test("diff compares the addresses of layer 2 with the interfaces that answer", () => {
  const [held, hidden, moved, kept, foreign] = [1, 2, 3, 4, 5].map((last) =>
    parseIpAddress(`203.0.113.${last}`)
  ) as [IpAddress, IpAddress, IpAddress, IpAddress, IpAddress];
  const found = new Map([
    ...[[held, ["lo", "eth0"]], [hidden, ["kube-ipvs0"]]] as const,
    ...[[moved, ["eth0"]], [kept, ["lo"]], [foreign, ["eth0"]]] as const,
  ]);
  const layer2 = { owned: new Set([held, hidden]), others: [moved, kept], found };
  return withRunning({ layer2 }, async (socket) => {
    const { routing } = JSON.parse((await run("diff", "--json", socket)).out);
    assertEquals(routing.differences, [
      {
        ...{ object: "address", name: hidden, kind: "missing" },
        wanted: "on an interface of this node, which answers for it",
      },
      {
        ...{ object: "address", name: moved, kind: "extra" },
        found: "on eth0, but this node does not answer for it",
      },
    ]);
  });
});

Deno.test("diff --manifests shows the addresses and announcements that other objects would change", async () => {
  await withDump(await routingDump("node-b", ["node-a", "node-b"]), async (path) => {
    const from = [`--from=${path}`, "--manifests=examples/routing-change"];
    const { out, err, code } = await run("diff", ...from);
    assertEquals([code, err], [3, ""], out);
    const section = out.slice(out.indexOf("Routing\n"));
    assertStringIncludes(await readPage("docs/diff.md"), `\`\`\`\n${section}`);
    const json = JSON.parse((await run("diff", "--json", ...from)).out);
    assertEquals([json.changes, json.routing.length], [5, 3]);
    assertEquals(json.routing[0], {
      object: "address",
      name: "shop/chat",
      after: "198.51.100.0",
    });
    // The assigned address is planned, and known addresses stay.
    assertStringIncludes(out, "  added    shop/chat:irc TCP");
    assert(!out.includes("203.0.113.7"), out);
    const one = await run("diff", "--service=shop/chat", ...from);
    assert(!one.out.includes("Routing"), one.out);
    const same = await run("diff", `--from=${path}`, "--manifests=examples/routing");
    assertEquals(same.code, 0, same.out);
    assertStringIncludes(same.out, "Routing\n  nothing would change");
  });
});

Deno.test("diff --manifests keeps addresses that kube-relay did not assign, and Services beside policies", async () => {
  const text = (await routingDump("node-b", ["node-a"])).replaceAll("203.0.113.7", "192.0.2.99");
  await withDump(text, async (path) => {
    const { out } = await run("diff", `--from=${path}`, "--manifests=examples/routing-change");
    assertStringIncludes(out, "addresses of shop/chat");
    assert(!out.includes("192.0.2.99"), out);
    const policies = "--manifests=examples/network-policy-change";
    const { out: found } = await run("diff", `--from=${path}`, policies);
    assertStringIncludes(found, "Routing\n  nothing would change");
  });
});
