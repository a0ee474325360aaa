/**
 * Tests that a dump contains no secret. Secrets are planted in every input of kube-relay, and the
 * text is searched for them.
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { DEFAULT_PEER, DEFAULT_POOL } from "../lib/config/routing.ts";
import { defaultConfiguration } from "../lib/config/configuration.ts";
import { collectDump, dumpedRoutingSettings } from "../lib/tools/dump/collect_dump.ts";
import { imported, peerImports } from "./support/builders/bgp_plans.ts";
import { routedNode } from "./support/builders/routed_objects.ts";
import { testNode, testService } from "./support/builders/builders.ts";
import { DumpedRelay } from "./support/stages/dumped_relay.ts";
import { FakeApiServer } from "./support/fakes/fake_api_server.ts";
import { FakeCommandRunner } from "./support/fakes/fake_command_runner.ts";
import { writeKubeconfig } from "./support/builders/kubeconfig_file.ts";
import { manifestText, rawObjects } from "./support/builders/raw_objects.ts";
import { FakeClock } from "./support/fakes/fake_clock.ts";
import { testDump, testDumpParts, testInformers } from "./support/builders/test_dump.ts";

const SECRET = "s3cr3t-planted-value";

/**
 * Metadata with secrets in everything that other programs write there, and one annotation of
 * kube-relay.
 */
const METADATA = {
  annotations: {
    "kubectl.kubernetes.io/last-applied-configuration": `{"password":"${SECRET}"}`,
    "example.com/token": SECRET,
    "k3s.io/node-args": `["server","--token","${SECRET}"]`,
    "kube-relay.io/ipvs-scheduler": "lc",
  },
  labels: { "example.com/owner": SECRET, "service.kubernetes.io/headless-not": SECRET },
  managedFields: [{ manager: SECRET }],
  ownerReferences: [{ name: SECRET, uid: SECRET }],
  generateName: SECRET,
};

function plantedObjects() {
  const service = testService("web", { selector: { app: SECRET } } as object, {
    metadata: METADATA as object,
  });
  const node = testNode();
  return [
    ...rawObjects("Service", service),
    ...rawObjects("Node", { ...node, metadata: { ...node.metadata, ...METADATA } as never }),
  ];
}

/** Every variable that might hold something. */
const ENV = {
  HTTPS_PROXY: `http://u:${SECRET}@192.0.2.1:3128`,
  KUBE_TOKEN: SECRET,
  HOME: "/home/x",
};

const MACHINE = () => new FakeCommandRunner().on("", { code: 127, stderr: `token=${SECRET}` });

Deno.test("a dump of a node with an API server has no token, key or foreign annotation", async () => {
  await using server = await FakeApiServer.start();
  const folder = await Deno.makeTempDir();
  try {
    const token = server.rotateToken();
    for (const object of plantedObjects()) server.store.create(object);
    const kubeconfig = `${folder}/kubeconfig`;
    await writeKubeconfig(kubeconfig, { server: server.url, ca: server.ca, user: { token } });
    await using relay = await DumpedRelay.start({
      mode: "userspace",
      commands: MACHINE(),
      flags: [`--kubeconfig=${kubeconfig}`],
      env: ENV,
    });
    const text = await relay.dump();
    assertStringIncludes(text, '"kube-relay.io/ipvs-scheduler":"lc"');
    const pem = server.ca.split("\n")[1]!;
    for (const secret of [SECRET, token, btoa(server.ca).slice(0, 40), pem]) {
      assertEquals(text.includes(secret), false, secret);
    }
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("a dump of a node with manifests has no foreign annotation, and no environment", async () => {
  const folder = await Deno.makeTempDir();
  try {
    await Deno.writeTextFile(`${folder}/a.json`, manifestText(plantedObjects()));
    await using relay = await DumpedRelay.start({
      mode: "userspace",
      commands: MACHINE(),
      flags: [`--manifests=${folder}/a.json`],
      env: ENV,
    });
    const text = await relay.dump();
    assertStringIncludes(text, '"name":"web"');
    assertEquals(text.includes(SECRET), false);
    assertEquals(text.includes("192.0.2.1:3128"), false);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("a dump removes user information and keys from text of other programs", () => {
  const { status } = testDumpParts();
  assert(status);
  const [family] = status.families;
  const text = testDump({
    status: {
      ...status,
      sources: [{
        name: `https://admin:${SECRET}@192.0.2.1:6443`,
        state: `connected by Bearer ${SECRET}`,
        problems: [`Cannot reach https://admin:${SECRET}@192.0.2.1:6443/api: refused`],
      }],
      families: [{ ...family!, lastError: `Authorization: Bearer ${SECRET}` }],
      node: { ...status.node, annotations: METADATA.annotations },
    },
  });
  assertStringIncludes(text, "@192.0.2.1:6443");
  assertEquals(text.includes(SECRET), false);
});

Deno.test("a dump has of the configuration no file, no server and no credential", () => {
  const parts = testDumpParts();
  const { proxy, relay } = parts.configuration;
  const configuration = {
    proxy: {
      ...proxy,
      clientConnection: { ...proxy.clientConnection, kubeconfig: `/root/${SECRET}` },
    },
    relay: {
      ...relay,
      master: `https://u:${SECRET}@192.0.2.1`,
      manifests: [`/srv/${SECRET}`],
      controlSocket: `/run/${SECRET}`,
      stateDirectory: `/var/${SECRET}`,
      toolsPath: [`/opt/${SECRET}`],
    },
  };
  const text = testDump({ configuration });
  assertStringIncludes(text, '"clusterCIDR":"10.0.0.0/8"');
  assertEquals(text.includes(SECRET), false);
});

Deno.test("a dump has no password of BGP, no path of one, and no annotation that may hold one", () => {
  const { routing } = defaultConfiguration();
  const own = routedNode({
    name: "a",
    addresses: ["192.0.2.1"],
    annotations: {
      "kube-router.io/peers": "- {remoteip: 192.0.2.9, remoteasn: 64601}",
      // Without the passwords, a plan by the dump would have these sessions.
      "kube-router.io/peer.ips": "192.0.2.10",
      "kube-router.io/peer.passwords": SECRET,
    },
  });
  const settings = dumpedRoutingSettings({
    ...routing,
    kubeconfig: `/${SECRET}/kubeconfig`,
    pools: [
      "office=203.0.113.0/28",
      "office=203.0.113.32",
      { ...DEFAULT_POOL, name: "rare", addresses: ["203.0.113.40"], priority: 7 },
    ],
    bgp: {
      ...routing.bgp,
      enabled: true,
      peers: [
        "64600@192.0.2.254",
        {
          ...DEFAULT_PEER,
          ...{ address: "192.0.2.253", as: 64_600, passwordFile: `/${SECRET}/password` },
          import: { prefixes: ["10.0.0.0/8"], clusterPrefixes: [], defaultRoute: true },
        },
      ],
    },
  }, own);
  const section = { objects: { services: [], nodes: [own] }, isDraining: false, networks: [] };
  const parts = testDumpParts();
  const proxy = { ...parts.configuration.proxy, routing: settings };
  const text = testDump({
    configuration: { ...parts.configuration, proxy },
    controllers: { routing: section },
  });
  assertEquals([text.includes(SECRET), text.includes("remoteip")], [false, false]);
  assertEquals(text.includes("192.0.2.10"), false);
  const { configuration: { proxy: { routing: { pools, bgp: { peers } } } } } = JSON.parse(text);
  assertEquals(pools.map(({ priority }: { readonly priority: number }) => priority), [0, 7]);
  assertEquals(pools[0].addresses, ["203.0.113.0-203.0.113.15", "203.0.113.32-203.0.113.32"]);
  assertEquals(
    peers.map(({ address, passwordFile }: Record<string, unknown>) => [
      address,
      passwordFile !== "",
    ]),
    // The last one is of the annotation.
    [["192.0.2.254", false], ["192.0.2.253", true], ["192.0.2.9", false]],
  );
  assertEquals(
    peers[1].import,
    peerImports({ prefixes: [imported("10.0.0.0/8", 8, 32)], defaultRoute: true }),
  );
});

Deno.test("a dump has nothing in place of a value of another type, and no text that reading refuses", () => {
  const { status, configuration: { proxy, relay } } = testDumpParts();
  const odd = "a\u001b[2Jb\u202ec\u200bd\ne";
  const text = testDump({
    status: { ...status!, phase: { token: SECRET } as never, node: { name: "a", zone: odd } },
    configuration: {
      relay,
      proxy: {
        ...proxy,
        hostnameOverride: { token: SECRET } as never,
        nodePortAddresses: [{ token: SECRET }] as never,
      },
    },
  });
  assertEquals(text.includes(SECRET), false);
  const { status: { node } } = JSON.parse(text);
  assertEquals(node.zone, "a\\u001b[2Jb\\u202ec\\u200bd\\u000ae");
});

Deno.test("a dump copies a long list while it is written", () => {
  const services = Array.from({ length: 100 }, (_, index) => testService(`web-${index}`));
  const { objects } = collectDump(
    { clock: new FakeClock(), kernelRelease: undefined },
    testDumpParts({ informers: testInformers({ services }) }),
  ) as { readonly objects: { readonly services: Iterable<unknown> } };
  assertEquals(Array.isArray(objects.services), false);
  assertEquals([...objects.services].length, 100);
});
