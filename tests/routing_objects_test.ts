/** Tests that a run takes pools and peers from objects of the cluster, and writes their status. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import type { RawObject } from "./conformance/server.ts";
import { runInProcess } from "./support/drivers/command_line.ts";
import { FakeApiServer } from "./support/fakes/fake_api_server.ts";
import { collectionOf } from "./support/fakes/fake_api_store.ts";
import { FakeClock } from "./support/fakes/fake_clock.ts";
import {
  assigned,
  rawLoadBalancer,
  rawNode,
  RoutingRelay,
} from "./support/stages/routing_relay.ts";
import { withFolder } from "./support/with_folder.ts";

const NODE = "node-a";
const API = "kube-relay.io/v1alpha1";

function pool(name: string, addresses: readonly string[], more: object = {}): RawObject {
  const metadata = { name, generation: 1 };
  return { apiVersion: API, kind: "LoadBalancerPool", metadata, spec: { addresses, ...more } };
}

function peer(name: string, spec: object): RawObject {
  return { apiVersion: API, kind: "BgpPeer", metadata: { name, generation: 1 }, spec };
}

async function startRelay(objects: readonly RawObject[], args: readonly string[] = []) {
  const [api, clock] = [await FakeApiServer.start(), new FakeClock()];
  for (const object of [rawNode(NODE, "192.168.0.2"), ...objects]) api.store.create(object);
  const relay = await RoutingRelay.start({
    ...{ node: NODE, api, clock, mode: "nftables" },
    args: ["--routing-objects", ...args],
  });
  const find = ({ kind, metadata: { name } }: RawObject) =>
    api.store.list(collectionOf({ kind, apiVersion: API })).find((each) =>
      each.metadata.name === name
    );
  const statusOf = (object: RawObject) =>
    (find(object)?.["status"] ?? {}) as {
      readonly conditions?: readonly {
        readonly status: string;
        readonly reason: string;
        readonly message: string;
      }[];
      readonly ipv4?: object;
      readonly sessions?: Readonly<Record<string, string>>;
      readonly established?: string;
    };
  let generation = 1;
  return {
    ...{ api, clock, relay, statusOf },
    balancer(name: string, clusterIP: string) {
      for (const object of rawLoadBalancer(name, { clusterIP, nodes: [NODE] })) {
        api.store.create(object);
      }
    },
    /** Changes the specification of an object, as a user does. */
    change(object: RawObject) {
      const { metadata, status } = find(object)!;
      generation++;
      api.store.update({ ...object, status, metadata: { ...metadata, generation } });
    },
    untilUsed: (object: RawObject, reason = "Used") =>
      relay.until(
        `${object.metadata.name} is ${reason}`,
        () => statusOf(object).conditions?.[0]?.reason === reason,
        { stepMs: 500 },
      ),
    [Symbol.asyncDispose]: async () => {
      await relay[Symbol.asyncDispose]();
      await api[Symbol.asyncDispose]();
    },
  };
}

Deno.test("a LoadBalancerPool is used, changed and removed while kube-relay runs", async () => {
  const office = pool("office", ["192.0.2.0/32"]);
  await using run = await startRelay([office]);
  const { api, relay, statusOf, balancer, change } = run;
  balancer("web", "172.30.0.41");
  await relay.until("it is assigned", () => `${assigned(api, "web")}` === "192.0.2.0");
  await relay.until("it is answered for", () => `${relay.held}` === "192.0.2.0");
  await relay.until(
    "its use is known",
    () => JSON.stringify(statusOf(office).ipv4) === '{"used":1,"total":"1"}',
    { stepMs: 500 },
  );
  assertEquals(statusOf(office).conditions?.[0]?.reason, "Used");

  balancer("shop", "172.30.0.42");
  change(pool("office", ["192.0.2.0/32", "192.0.2.8/30"]));
  await relay.until("the second one", () => `${assigned(api, "shop")}` === "192.0.2.8");
  await relay.until(
    "both are counted",
    () => JSON.stringify(statusOf(office).ipv4) === '{"used":2,"total":"5"}',
    { stepMs: 500 },
  );
  const moved = relay.backends.calls.filter((call) => call === "remove 192.0.2.0");
  assertEquals(moved, [], "the first address was answered for all the time");

  api.store.delete(office);
  await relay.until("it is no longer answered for", () => relay.held.length === 0);
  assertEquals(assigned(api, "web"), ["192.0.2.0"]);
});

Deno.test("the configuration wins, and one bad object stops no other", async () => {
  const taken = pool("office", ["192.0.2.64/30"]);
  const overlaps = pool("dmz", ["192.0.2.1-192.0.2.9"]);
  const good = pool("rare", ["198.51.100.7"]);
  const late = pool("also-rare", ["198.51.100.0/24"]);
  await using run = await startRelay([taken, overlaps, good, late], [
    "--load-balancer-pools=office=192.0.2.0/30",
  ]);
  const { api, relay, statusOf, balancer, change, untilUsed } = run;
  /** Each object, and what its condition says. */
  const cases: readonly (readonly [object: RawObject, reason: string, message: string])[] = [
    [
      taken,
      "NotUsed",
      "metadata.name: Expected a pool 'office' of its own, found pool 'office' of the configuration " +
      "file, which wins",
    ],
    [
      overlaps,
      "NotUsed",
      "spec.addresses[0]: Expected addresses that no other pool has, found '192.0.2.1-192.0.2.9', " +
      "which overlaps a range of pool 'office' of the configuration file, which wins",
    ],
    [
      late,
      "Used",
      "The object is used",
    ],
    [
      good,
      "NotUsed",
      "spec.addresses[0]: Expected addresses that no other pool has, found '198.51.100.7', which " +
      "overlaps a range of LoadBalancerPool also-rare",
    ],
  ];
  for (const [object, reason, message] of cases) {
    await untilUsed(object, reason);
    assertEquals(statusOf(object).conditions?.[0]?.message, message);
  }
  const line = relay.lines.find((each) => each.includes("Cannot use an object"));
  assertStringIncludes(line ?? "", "of the configuration file, which wins");
  const { controllers } = await relay.status();
  assertStringIncludes(JSON.stringify(controllers), "LoadBalancerPool rare: spec.addresses[0]");

  change(pool("also-rare", ["198.51.100.0/28"], { announce: "layer2" }));
  await untilUsed(late);
  change(pool("rare", ["198.51.100.64/33"]));
  await untilUsed(good, "NotUsed");
  change(pool("rare", ["198.51.100.64/32"], { autoAssign: true }));
  await untilUsed(good);

  // What works goes on with its last good version, also if another object wants its addresses.
  change(pool("rare", ["198.51.100.64/32", "2001:db8::/64-1"]));
  await untilUsed(good, "LastGoodVersionUsed");
  assertStringIncludes(statusOf(good).conditions![0]!.message, "found '2001:db8::/64-1'; its last");
  change(pool("also-rare", ["198.51.100.0/24"]));
  await untilUsed(late, "LastGoodVersionUsed");
  balancer("web", "172.30.0.41");
  await relay.until("it is assigned", () => `${assigned(api, "web")}` === "198.51.100.0");
});

Deno.test("a BgpPeer is used, and each node writes its session", async () => {
  const [tor, spine] = [
    peer("tor-1", { address: "198.51.100.1", as: 64513, passwordSecret: { key: "tor" } }),
    peer("spine", { address: "198.51.100.2", as: 64514 }),
  ];
  const gone = { sessions: { "node-gone": "Established" } };
  await using run = await startRelay([tor, { ...spine, status: gone }], [
    ...["--bgp", "--bgp-peers=64520@198.51.100.9", "--load-balancer-announce=bgp"],
    "--load-balancer-pools=192.0.2.0/32",
  ]);
  const { api, relay, statusOf, balancer, change, untilUsed } = run;
  const { daemon } = relay.backends;
  const names = () => `${daemon.plan?.peers.map(({ name }) => name)}`;
  balancer("web", "172.30.0.41");
  await relay.until("it is announced", () => `${daemon.announced}` === "192.0.2.0/32");
  const before = relay.backends.calls.length;
  await relay.until("all are peers", () => names() === "peer_198_51_100_9,spine,tor_1");
  assertEquals(daemon.plan!.peers[2]!.passwordSecret, { name: "kube-relay-bgp", key: "tor" });
  await untilUsed(tor);
  await relay.until("the sessions are known", () => statusOf(spine).established === "1 of 1", {
    stepMs: 500,
  });
  assertEquals(statusOf(spine).sessions, { [NODE]: "Established" });

  change(peer("spine", { address: "198.51.100.9", as: 64514 }));
  await untilUsed(spine, "LastGoodVersionUsed");
  assertStringIncludes(
    statusOf(spine).conditions![0]!.message,
    "found peer 'peer_198_51_100_9' of the configuration file",
  );
  change(
    peer("tor-1", {
      address: "198.51.100.1",
      as: 64513,
      nodeSelector: { matchLabels: { a: "b" } },
    }),
  );
  await relay.until("it is no peer of this node", () => names() === "peer_198_51_100_9,spine");
  await relay.until(
    "its session is forgotten",
    () => statusOf(tor).sessions?.[NODE] === undefined && statusOf(tor).established === "0 of 0",
    { stepMs: 1000 },
  );
  api.store.delete(spine);
  await relay.until("one is gone", () => names() === "peer_198_51_100_9");
  const withdrawn = relay.backends.calls.slice(before).filter((call) =>
    call.startsWith("announce") && !call.includes("192.0.2.0/32")
  );
  assertEquals(daemon.peers[0]?.includes("tor_1"), true, "no session ended at the start");
  assertEquals(withdrawn, [], "the address was announced all the time");
});

Deno.test("without the definitions, the configuration works alone", async () => {
  const [api, clock] = [await FakeApiServer.start(), new FakeClock()];
  await using _api = api;
  for (const plural of ["loadbalancerpools", "bgppeers"]) {
    api.setMissing(`/apis/${API}/${plural}`, 404);
  }
  for (const object of rawLoadBalancer("web", { clusterIP: "172.30.0.41", nodes: [NODE] })) {
    api.store.create(object);
  }
  api.store.create(rawNode(NODE, "192.168.0.2"));
  await using relay = await RoutingRelay.start({
    ...{ node: NODE, api, clock, mode: "nftables" },
    args: ["--routing-objects", "--load-balancer-pools=192.0.2.0/32"],
  });
  await relay.until("it is answered for", () => `${relay.held}` === "192.0.2.0");
});

const MANIFESTS = `
apiVersion: v1
kind: Node
metadata: {name: node-a}
status: {addresses: [{type: InternalIP, address: 192.168.0.2}]}
---
apiVersion: ${API}
kind: LoadBalancerPool
metadata: {name: office}
spec: {addresses: [192.0.2.0/28], announce: bgp}
---
apiVersion: ${API}
kind: BgpPeer
metadata: {name: tor}
spec: {address: 198.51.100.1, as: 64513, passwordSecret: {key: tor}}
`;

Deno.test("render and check read pools and peers of manifests", () =>
  withFolder(async (folder) => {
    const file = `${folder}/objects.yaml`;
    const run = async (text: string, verb: string, ...args: readonly string[]) => {
      await Deno.writeTextFile(file, text);
      const { code, out, err } = await runInProcess([
        ...[verb, ...(verb === "check" ? [file] : ["--manifests", file])],
        ...["--hostname-override=node-a", ...args],
      ]);
      return { code, text: (out + err).replaceAll(`${folder}/`, "") };
    };
    const flags = ["--routing", "--routing-objects", "--bgp"];
    const rendered = await run(MANIFESTS, "render", "--mode=bgp", ...flags);
    assertStringIncludes(rendered.text, "neighbor 198.51.100.1 port 179 as 64513;");
    assertStringIncludes(rendered.text, "password password_tor;");
    const alone = await run(MANIFESTS, "render", "--mode=bgp", "--routing", "--bgp");
    assertEquals(alone.text.includes("198.51.100.1"), false, "the setting is off");

    assertEquals(await run(MANIFESTS, "check"), { code: 0, text: "No problems in 1 file\n" });
    /** Changes of the text, and what check says of them. */
    const cases: readonly (readonly [from: string, to: string, says: string])[] = [
      [
        "192.0.2.0/28",
        "192.0.2.0/99",
        "objects.yaml:10:20: error: LoadBalancerPool office: spec.addresses[0]",
      ],
      ["as: 64513", "as: 23456", "spec.as: Expected an AS number that is not reserved"],
      ["bgp}", "ospf}", "spec.announce"],
      ["addresses: [192.0.2", "adresses: [192.0.2", "spec.adresses"],
      ["key: tor}", "key: ..}", "spec.passwordSecret.key: Expected the name of a Secret and a key"],
      ["name: tor}", "name: tor.1}", "metadata.name: Expected small letters, digits and '-'"],
    ];
    for (const [from, to, says] of cases) {
      const { code, text } = await run(MANIFESTS.replace(from, to), "check");
      assertEquals(code, 1, text);
      assertStringIncludes(text, says);
    }
  }));

Deno.test("a dump has the versions in use, and gives the same plan", async () => {
  const secret = peer("tor", {
    address: "198.51.100.1",
    as: 64513,
    passwordFile: "/etc/topsecret",
  });
  const office = pool("office", ["192.0.2.0/32"], { announce: "bgp" });
  await using run = await startRelay([secret, office], ["--bgp"]);
  const { relay, change, untilUsed } = run;
  await untilUsed(office);
  change(pool("office", ["192.0.2.0/99"], { announce: "bgp" }));
  await untilUsed(office, "LastGoodVersionUsed");
  await withFolder(async (folder) => {
    const file = `${folder}/node.json`;
    const dumped = await runInProcess(["dump", file, `--control-socket=${relay.socket}`]);
    assertEquals([dumped.code, dumped.err], [0, ""]);
    const text = await Deno.readTextFile(file);
    assertEquals(text.includes("topsecret"), false);
    const { controllers: { routing: { objects } } } = JSON.parse(text);
    assertEquals(objects.loadbalancerpools[0].spec.addresses, ["192.0.2.0/32"]);
    const { out } = await runInProcess(["render", `--from=${file}`, "--mode=bgp"]);
    assertStringIncludes(out, "neighbor 198.51.100.1 port 179 as 64513;");
  });
});

Deno.test("diff takes new pools and peers on top of those in use", async () => {
  const office = pool("office", ["192.0.2.0/32"], { announce: "bgp" });
  await using run = await startRelay([
    office,
    peer("tor", { address: "198.51.100.1", as: 64513 }),
  ], ["--bgp"]);
  const { relay, balancer, api } = run;
  balancer("web", "172.30.0.41");
  await relay.until("it is assigned", () => `${assigned(api, "web")}` === "192.0.2.0");
  balancer("shop", "172.30.0.42");
  await relay.until("it is announced", () => `${relay.backends.daemon.announced}` !== "");
  await relay.until("all are served", async () => {
    const { controllers } = await relay.status();
    return JSON.stringify(controllers).includes("default/shop");
  });
  /** A new object, and what changes. */
  const cases: readonly (readonly [RawObject, readonly string[]])[] = [
    [
      pool("more", ["192.0.2.8/32"], { announce: "none" }),
      [
        "addresses of default/shop: refused: Pool 'office' has no free address of IPv4",
        "-> 192.0.2.8",
      ],
    ],
    [
      peer("tor", { address: "198.51.100.2", as: 64514 }),
      [
        "session with tor: AS 64513 at 198.51.100.1 port 179 (external) -> AS 64514 at",
        "198.51.100.2 port 179 (external)",
      ],
    ],
  ];
  await withFolder(async (folder) => {
    const [dump, file] = [`${folder}/node.json`, `${folder}/new.yaml`];
    await runInProcess(["dump", dump, `--control-socket=${relay.socket}`]);
    for (const [object, changes] of cases) {
      await Deno.writeTextFile(file, JSON.stringify(object));
      const { out } = await runInProcess(["diff", `--from=${dump}`, `--manifests=${file}`]);
      const [, routing = ""] = out.split("Routing\n");
      const lines = routing.split("\n\n")[0]!.split("\n").map((line) => line.trim());
      assertEquals(lines, changes, out);
      assertEquals(out.includes("removed"), false, out);
    }
  });
});

Deno.test("a Service keeps its address while its Namespace is not known yet", async () => {
  const office = pool("office", ["192.0.2.0/32"], {
    namespaceSelector: { matchLabels: { team: "office" } },
  });
  const [api, clock] = [await FakeApiServer.start(), new FakeClock()];
  await using _api = api;
  const [service, slice] = rawLoadBalancer("web", { clusterIP: "172.30.0.41", nodes: [NODE] });
  const status = { loadBalancer: { ingress: [{ ip: "192.0.2.0" }] } };
  const metadata = { name: "default", labels: { team: "office" } };
  const namespace = { apiVersion: "v1", kind: "Namespace", metadata };
  const node = rawNode(NODE, "192.168.0.2");
  for (const object of [node, office, { ...service!, status }, slice!, namespace]) {
    api.store.create(object);
  }
  api.setMissing("/api/v1/namespaces", 404);
  await using relay = await RoutingRelay.start({
    ...{ node: NODE, api, clock, mode: "nftables" },
    args: ["--routing-objects"],
  });
  const count = (words: string) => relay.lines.filter((each) => each.includes(words)).length;
  await relay.until("it was tried again", () => count("namespaces") > 2, { stepMs: 1000 });
  assertEquals(assigned(api, "web"), ["192.0.2.0"]);
  api.setMissing("/api/v1/namespaces", undefined);
  await relay.until("it leads", () => count("This process assigns") > 0, { stepMs: 1000 });
  await relay.until("it is answered for", () => `${relay.held}` === "192.0.2.0");
});
