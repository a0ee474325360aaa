/**
 * A controller that no release has, in a run with Services: its definition alone makes it synced,
 * reported, dumped, measured, watched over, drained and stopped; without it a run is as kube-proxy.
 *
 * @module
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { askControl, askControlText, requestStatus } from "../lib/tools/control/control_client.ts";
import type { ChangesReport } from "../lib/tools/changes/change_entry.ts";
import { renderChanges } from "../lib/tools/changes/changes_view.ts";
import { OUTCOME_PART } from "../lib/tools/dump/dump_schema.ts";
import { parseDump } from "../lib/tools/dump/read_dump.ts";
import { relayFindings } from "../lib/tools/doctor/examine_relay.ts";
import { pageDocument } from "../lib/tools/status/page/page_document.ts";
import { paintText } from "../lib/tools/report.ts";
import { agesAt, statusAnswer } from "../lib/tools/status/status_answer.ts";
import { renderWatch } from "../lib/tools/status/watch_view.ts";
import { lantern } from "./support/builders/lantern.ts";
import { LanternRelay } from "./support/stages/lantern_relay.ts";

/** Series of kube-proxy's metrics, without their values. */
function kubeProxySeries(lines: readonly string[]): readonly string[] {
  return lines.filter((line) => /^(# (HELP|TYPE) )?kubeproxy_/.test(line))
    .map((line) => line.startsWith("#") ? line : line.slice(0, line.lastIndexOf(" ")));
}

Deno.test("a made-up controller syncs, and everything that reports names it", async (t) => {
  await using stage = await LanternRelay.start({ isEnabled: true });
  const { socket, plane, clock, calls } = stage;
  assertEquals([...plane.lit], [["park/a", "Elm"]]);
  assertEquals(calls.slice(0, 3), ["start lanterns", "addresses for lanterns", "open lanterns"]);
  const status = await requestStatus(socket);
  const changes = await askControl(socket, { route: "/changes" }) as ChangesReport;
  const look = { now: clock.wallNow(), columns: 100, timeZone: "UTC" };

  await t.step("the status", () => {
    const [controller] = status.controllers!;
    assertEquals(controller!.controller, "routing");
    assertEquals(controller!.facts, [{ name: "Lanterns", text: "1 lit" }]);
    const [loop] = controller!.families;
    const { family, summary, failures, quarantined } = loop!;
    assertEquals<unknown>({ family, summary, failures, quarantined }, {
      family: "IPv4",
      summary: "gas lights",
      failures: 0,
      quarantined: [{ key: "park/b", address: "the corner", reason: "no such street" }],
    });
    assertEquals(status.families.map(({ services }) => services.length), [1], "Services stay");
  });
  await t.step("the terminal", () => {
    const text = paintText(statusAnswer(status, { time: agesAt(look.now) }), look);
    assertStringIncludes(text, "\n\nrouting\n  Lanterns  1 lit\n  IPv4      gas lights\n  Sync");
    assertStringIncludes(text, "park/b at the corner: no such street\n");
  });
  await t.step("the live view", () => {
    const model = { socket, filter: "", scrolledBy: 0, answer: { at: look.now, status, changes } };
    const size = { columns: 100, rows: 40 };
    const lines = renderWatch(model, { ...look, size });
    assert(lines.some((line) => /^routing IPv4 /.test(line)), lines.join("\n"));
    assert(lines.some((line) => line.includes("routing: ")), lines.join("\n"));
  });
  await t.step("the page", () => {
    const { syncs, entries } = changes;
    const doctor = { findings: [] };
    const page = pageDocument({ report: status, filter: "", syncs, changes: entries, doctor });
    assertStringIncludes(page, "Policies and routing</h2>");
    assertStringIncludes(page, "<h3>routing</h3>");
    assertStringIncludes(page, "park/b at the corner: no such street");
  });
  await t.step("the findings of doctor", () => {
    const [finding] = relayFindings(status);
    assertEquals(finding?.evidence, ["routing IPv4: park/b: no such street"]);
  });
  await t.step("the change log", () => {
    const entries = changes.entries.filter((entry) => "controller" in entry);
    const [sync, quarantine] = entries;
    assert(sync?.kind === "sync" && quarantine?.kind === "quarantine");
    assertEquals([sync.controller, sync.family], ["routing", "IPv4"]);
    assertEquals(sync.lines.flatMap(({ object = [] }) => object).sort(), ["park/a", "park/b"]);
    const effect = sync.lines.find(({ item }) => item !== undefined);
    assertEquals(effect?.text, "-> park/a added: in Elm Street");
    assertEquals(quarantine.lines[0]?.item, "park/b");
    assert(changes.syncs.some(({ controller }) => controller === "routing"));
    const others = changes.entries.filter((entry) => !("controller" in entry));
    assert(others.some(({ kind }) => kind === "sync"), "Services have entries without a name");
    const text = renderChanges(changes, look);
    assertStringIncludes(text, "routing: First sync: everything that is known");
    assertStringIncludes(text, "routing: QUARANTINE: park/b the corner: no such street");
  });
  await t.step("the dump", async () => {
    const text = await askControlText(socket, { route: "/dump" });
    const dump = JSON.parse(text);
    assertEquals(dump.controllers.routing, {
      gas: "on",
      streets: { "park.a": "Elm", "park.b": "Nowhere" },
    });
    assertEquals(dump.objects.lanterns.length, 2);
    assertEquals(dump.status.controllers[0].controller, "routing");
    assertEquals(text.includes("s3cret"), false);
    const read = parseDump(text, { source: "it", part: OUTCOME_PART });
    assertEquals(read.status?.controllers?.length, 1);
  });
  await t.step("its own path on the control socket", async () => {
    assertEquals<unknown>(await askControl(socket, { route: "/lanterns" }), ["park/a"]);
  });
  await t.step("the metrics", async () => {
    const labels = 'controller="routing",ip_family="IPv4"';
    const lines = await stage.metrics();
    assert(lines.includes(`kube_relay_controller_quarantined_items{${labels}} 1`));
    const time = `kube_relay_controller_last_sync_timestamp_seconds{${labels}}`;
    assert(lines.some((line) => line.startsWith(time)));
    const count = `kube_relay_controller_sync_duration_seconds_count{${labels}}`;
    assert(lines.some((line) => line.startsWith(count)));
  });
  await t.step("health", async () => {
    const { code, body } = await stage.health("healthz");
    assertEquals(code, 200);
    assertEquals(Object.keys(body.status), ["IPv4", "routing/IPv4"]);
  });
});

Deno.test("a made-up controller whose sync hangs makes the node unhealthy", async () => {
  await using stage = await LanternRelay.start({ isEnabled: true });
  const { plane, clock, lines, api } = stage;
  const hanging = Promise.withResolvers<void>();
  plane.hanging = hanging.promise;
  api.store.create(lantern("c", { street: "Oak" }));
  await stage.until("a sync runs", async () => {
    const { controllers } = await requestStatus(stage.socket);
    return controllers![0]!.families[0]!.pending;
  });
  assertEquals((await stage.health("livez")).code, 200);
  const startedAt = clock.now();
  const isLate = async () => (await stage.health("livez")).code === 503;
  await stage.until("it is noticed", isLate, { stepMs: 5_000 });
  assert(clock.now() - startedAt > 50_000, "it was noticed too early");
  const { body } = await stage.health("healthz");
  const healthy = Object.entries(body.status)
    .map(([name, { healthy }]) => [name, healthy]);
  assertEquals(healthy, [["IPv4", true], ["routing/IPv4", false]]);
  await clock.advance(70_000);
  assert(lines.some((line) => line.includes("A sync is overdue")), "the watchdog did not notice");
  hanging.resolve();
  await stage.until("it is healthy", async () => (await stage.health("livez")).code === 200);
  assertEquals(plane.lit.get("park/c"), "Oak");
});

Deno.test("a made-up controller is stopped before Services, and drained with them", async () => {
  const stage = await LanternRelay.start({ isEnabled: true });
  const { calls } = stage;
  calls.length = 0;
  await stage[Symbol.asyncDispose]();
  assertEquals(calls.filter((each) => !each.startsWith("addresses")), [
    "stop lanterns",
    "drain lanterns",
    "drain Services",
    "dispose of lanterns",
    "dispose of Services",
  ]);
});

Deno.test("a run without other controllers is as kube-proxy, and watches no further kind", async () => {
  await using stage = await LanternRelay.start({ isEnabled: false });
  await using other = await LanternRelay.start({ isEnabled: true });
  const pathsOf = ({ api }: LanternRelay) =>
    new Set(api.requests.filter(({ method }) => method === "GET").map(({ path }) => path));
  const lanterns = "/apis/lights.example.org/v2/lanterns";
  assertEquals([...pathsOf(other).difference(pathsOf(stage))], [lanterns]);
  assertEquals([...pathsOf(stage)].sort(), [
    "/api/v1/nodes",
    "/api/v1/services",
    "/apis/discovery.k8s.io/v1/endpointslices",
    "/apis/networking.k8s.io/v1/servicecidrs",
  ]);
  assertEquals(stage.calls, []);
  const status = await requestStatus(stage.socket);
  assertEquals("controllers" in status, false);
  assertEquals(
    "controllers" in JSON.parse(await askControlText(stage.socket, { route: "/dump" })),
    false,
  );
  const { body } = await stage.health("healthz");
  assertEquals(Object.keys(body), [
    "lastUpdated",
    "currentTime",
    "nodeEligible",
    "healthy",
    "status",
  ]);
  assertEquals(Object.keys(body.status), ["IPv4"]);
  const [alone, both] = [await stage.metrics(), await other.metrics()];
  assertEquals(kubeProxySeries(alone), kubeProxySeries(both));
  assert(kubeProxySeries(alone).length > 20, "there are no metrics");
  assertEquals(alone.filter((line) => line.includes("routing")), []);
});
