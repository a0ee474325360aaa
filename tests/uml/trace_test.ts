/** `kube-relay trace` in ipvs mode: the rules by their counters, and the connection of IPVS. */
import { assert, assertEquals } from "@std/assert";
import { ADDRESSES } from "../support/builders/address_plan.ts";
import { testService } from "../support/builders/builders.ts";
import { IPVS_MODE } from "../support/stages/ipvs_mode.ts";
import { program, testNeeding } from "../support/requirement.ts";
import { TraceStage } from "../support/stages/trace_stage.ts";
import { webServices, webSlices } from "../support/builders/web_service.ts";
import { GUEST } from "./guest.ts";

const { clusterIp, localPods: [pod], remotePods: [far] } = ADDRESSES.IPv4;
const EMPTY = "172.30.0.90";

const test = testNeeding("a trace through IPVS", [
  GUEST,
  ...IPVS_MODE.requirements(),
  ...["conntrack", "ps"].map(program),
]);

test("trace reports the endpoint that IPVS chose, and the rule that refused", async () => {
  await using stage = await TraceStage.start(IPVS_MODE, (scene) =>
    scene.write(
      [...webServices(), testService("empty", { clusterIP: EMPTY })],
      webSlices("a1", "b1"),
    ));
  const before = await IPVS_MODE.state(stage.node);
  for (const target of [`${clusterIp}:80/TCP`, "ns1/web-6:udp"]) {
    const { report, code, stderr } = await stage.trace("node", target);
    assert(report, stderr);
    const said = JSON.stringify(report, undefined, 1);
    assertEquals([report.comparison?.differences, code], [[], 0], said);
    assert(report.outcome.kind === "forwarded", said);
    assert(report.steps.some(({ place }) => place === "IPVS"), said);
    if (report.packet.family !== "IPv4") continue;
    assert([`${pod}:8080`, `${far}:8080`].includes(report.outcome.endpoint), said);
  }
  const { report, stderr } = await stage.trace("node", `${EMPTY}:80`);
  assert(report?.outcome.kind === "rejected", `${JSON.stringify(report, undefined, 1)}${stderr}`);
  assertEquals(await IPVS_MODE.state(stage.node), before);
  assertEquals(await stage.leftovers(), []);
});
