/** The driver of BIRD when daemons, peers, files and passwords fail. */
import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import type { BgpPlan } from "../../lib/routing/bgp_plan.ts";
import { announced, bgpPeer, bgpPlan, cidrs, NO_IMPORTS } from "../support/builders/bgp_plans.ts";
import { eventually } from "../support/eventually.ts";
import { testNeeding } from "../support/requirement.ts";
import { frrConfiguration, type FrrRouter } from "../support/stages/bgp_routers.ts";
import {
  bgpRequirements,
  BgpStage,
  established,
  sessionOf,
  startWith,
} from "../support/stages/bgp_stage.ts";

const test = testNeeding("BGP by BIRD", bgpRequirements());

const VIP = "203.0.113.10/32";
const LEARNED = "198.51.100.0/24 via 192.0.2.2 dev eth0 proto bird metric 4242";

/** One router, one address, one learned prefix. */
function planOf(fields: Parameters<typeof bgpPeer>[2] = {}): BgpPlan {
  return bgpPlan({
    peers: [bgpPeer("frr", "192.0.2.2", fields)],
    announced: [announced(VIP)],
    imports: { ...NO_IMPORTS, external: cidrs("198.51.100.0/24") },
  });
}

async function announcedAt(frr: FrrRouter, prefix = VIP): Promise<void> {
  await eventually(`${prefix} at FRR`, async () => (await frr.paths(prefix)).length > 0);
}

test("a session whose local address comes later starts then, next to one of any address", async () => {
  await using stage = await BgpStage.create(2);
  const [node, frr] = [stage.node(1), stage.frr(2)];
  await frr.start([
    ...frrConfiguration().slice(0, 6),
    " neighbor 192.0.2.77 remote-as 64512",
    " neighbor 192.0.2.77 timers connect 1",
    " address-family ipv4 unicast",
    "  neighbor 192.0.2.77 activate",
  ]);
  const plan = planOf({ localAddress: parseIpAddress("192.0.2.77") });
  const dataPlane = await startWith(node, plan);
  await dataPlane.sync(plan);
  assertStringIncludes(
    (await sessionOf(dataPlane, plan, "frr")).description,
    "No listening socket; the address 192.0.2.77 is missing",
  );
  await node.namespace.ip("addr add 192.0.2.77/32 dev eth0");
  await eventually(
    "BIRD knows the address",
    async () => (await node.birdc("show interfaces")).includes("192.0.2.77"),
  );
  assertEquals((await dataPlane.sync(plan)).operations, { sessions: 1 });
  await announcedAt(frr);

  // With a peer for which BIRD listens at all addresses, the first one must not bind its own.
  const both = { ...plan, peers: [...plan.peers, bgpPeer("other", "192.0.2.9")] };
  await dataPlane.sync(both);
  await established(dataPlane, both, "frr");
  await eventually("the other one listens", async () => {
    // The former socket is closed a moment after the new one was tried.
    await dataPlane.sync(both);
    const sessions = await dataPlane.sessions(both);
    return !sessions.some(({ lastError }) => lastError?.includes("listening"));
  });
});

test("a BIRD or a file that kube-relay did not write is never changed", async () => {
  await using stage = await BgpStage.create(1);
  const node = stage.node(1);
  const foreign = "# By hand.\nrouter id 192.0.2.99;\nprotocol device {\n}\n";
  const path = `${stage.folder}/foreign.conf`;
  await Deno.writeTextFile(path, foreign);
  await node.startBird(path);
  const before = await node.birdc("show status");
  const plan = planOf();
  const dataPlane = node.makeDataPlane();
  await assertRejects(
    () => dataPlane.sync(plan),
    Error,
    "kube-relay did not write its configuration",
  );
  await assertRejects(() => dataPlane.compare(plan), Error, "did not write its configuration");
  assertEquals(await Deno.stat(node.paths.file).catch(() => "absent"), "absent");
  const lastChange = (status: string) => Date.parse(/reconfiguration on (.*)/.exec(status)![1]!);
  const assertUnchanged = async () => {
    // BIRD computes it for each report, from the time since its start: it may differ by 1 ms.
    const laterMs = lastChange(await node.birdc("show status")) - lastChange(before);
    assert(Math.abs(laterMs) <= 10, `reconfigured ${laterMs} ms later`);
  };
  await assertUnchanged();
  assertStringIncludes(await node.birdc("show status"), "Router ID is 192.0.2.99");
  // What an earlier run left is removed, and the BIRD stays as it is.
  const ours = [...dataPlane.render(plan)].join("");
  await Deno.writeTextFile(node.paths.file, ours);
  const report = await dataPlane.cleanup();
  assertEquals(report.failed, []);
  assertEquals(report.kept?.length, 1);
  assertEquals(await Deno.stat(node.paths.file).catch(() => "absent"), "absent");
  await assertUnchanged();
  await node.killBird();

  await Deno.writeTextFile(node.paths.file, foreign);
  await assertRejects(
    () => dataPlane.sync(plan),
    Error,
    "kube-relay did not write it. Remove it, or choose another path",
  );
  const { removed, failed } = await dataPlane.cleanup();
  assertEquals([removed.length, failed.length], [0, 1]);
  assertEquals(await Deno.readTextFile(node.paths.file), foreign);
});

test("a configuration that BIRD refuses leaves the former one in force, and names the line", async () => {
  await using stage = await BgpStage.create(2);
  const [node, frr] = [stage.node(1), stage.frr(2)];
  await frr.start(frrConfiguration());
  const plan = planOf();
  const dataPlane = await startWith(node, plan);
  await dataPlane.sync(plan);
  await announcedAt(frr);
  const { since } = await sessionOf(dataPlane, plan, "frr");
  const text = await Deno.readTextFile(node.paths.file);
  const wrong = {
    ...plan,
    peers: [...plan.peers, bgpPeer("far", "192.0.2.9", { multihopTtl: 999 })],
  };
  const error = await assertRejects(() => dataPlane.sync(wrong), Error);
  assert(
    /BIRD refused the configuration: .*:\d+:\d+ .*\(line \d+: "multihop 999;"\)/.test(
      error.message,
    ),
    error.message,
  );
  assertEquals(await Deno.readTextFile(node.paths.file), text);
  const names = (await Array.fromAsync(Deno.readDir(`${stage.folder}/node1`))).map(({ name }) =>
    name
  );
  assertEquals(names.sort(), ["bird-secrets.conf", "bird.conf", "bird.ctl"]);
  assertEquals((await dataPlane.sync(plan)).operations, {});
  assertEquals((await sessionOf(dataPlane, plan, "frr")).since, since);
});

test("a changed file, and a BIRD that was reconfigured behind the driver, are repaired", async () => {
  await using stage = await BgpStage.create(2);
  const [node, frr] = [stage.node(1), stage.frr(2)];
  await frr.start(frrConfiguration());
  const plan = planOf();
  await startWith(node, plan);
  const dataPlane = node.makeDataPlane(100);
  await dataPlane.sync(plan);
  const end = new AbortController();
  const watching = dataPlane.watch(() => void dataPlane.sync(plan), end.signal);
  await announcedAt(frr);
  const text = await Deno.readTextFile(node.paths.file);
  const without = text.replace(/ {2}route 203[^}]*};\n/, "").replace(
    /(kube_relay_conf\w+ = ")/,
    "$1x",
  );
  const other = `${stage.folder}/other.conf`;
  await Deno.writeTextFile(other, without);
  const warned = (field: string) =>
    node.logger.lines.some(({ level, message, fields }) =>
      level === "warn" && message === "BIRD runs with another configuration; repairing" &&
      field in fields
    );
  const repaired = () =>
    eventually(
      "everything is repaired",
      async () =>
        await Deno.readTextFile(node.paths.file) === text &&
        (await dataPlane.compare(plan)).length === 0,
    );
  // A full comparison may come first, so that the look finds nothing.
  await eventually("a look notices the file", async () => {
    await Deno.writeTextFile(node.paths.file, without);
    await repaired();
    return warned("file");
  });
  await eventually("a look notices the configuration in force", async () => {
    await node.birdc(`configure "${other}"`);
    await repaired();
    return warned("found");
  });
  end.abort();
  await watching;
  await announcedAt(frr);
});

test("cleanup withdraws everything, removes the files and the routes of peers, and no other route", async () => {
  await using stage = await BgpStage.create(2);
  const [node, frr] = [stage.node(1), stage.frr(2)];
  await frr.start(frrConfiguration({ networks: ["198.51.100.0/24"] }));
  const plan = planOf();
  const dataPlane = await startWith(node, plan);
  await dataPlane.sync(plan);
  await announcedAt(frr);
  await node.namespace.ip("route add 198.18.0.0/24 via 192.0.2.2 proto bird metric 7");
  const before = (await node.routes()).filter((line) => line !== LEARNED);
  await eventually("the route", async () => (await node.routes()).includes(LEARNED));
  const preview = await dataPlane.cleanup({ dryRun: true });
  assertEquals(preview.removed, [
    "route 198.51.100.0/24 of BIRD",
    `file ${node.paths.file}`,
    `file ${node.paths.secretsFile}`,
  ]);
  assert((await node.routes()).includes(LEARNED));
  const { removed, failed } = await dataPlane.cleanup();
  assertEquals([removed.slice(-2), failed], [preview.removed.slice(-2), []]);
  await eventually("the withdrawal", async () => (await frr.paths(VIP)).length === 0);
  await eventually("no route of peers", async () => !(await node.routes()).includes(LEARNED));
  assertEquals(await node.routes(), before);
  assertEquals(await dataPlane.cleanup(), { removed: [], failed: [] });

  // BIRD was killed, so its routes are still there.
  const again = node.makeDataPlane();
  await again.sync(plan);
  await eventually("the route again", async () => (await node.routes()).includes(LEARNED));
  await node.killBird();
  const after = await again.cleanup();
  assertEquals([after.removed, after.failed], [preview.removed, []]);
  assertEquals(await node.routes(), before);
});
