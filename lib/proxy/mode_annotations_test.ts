import { assertEquals } from "@std/assert";
import { testService } from "../../tests/support/builders/builders.ts";
import { modeAnnotationsOf } from "./mode_annotations.ts";
import { servicePortsFromService } from "./service_port.ts";

Deno.test("modeAnnotationsOf() keeps the annotations that a mode reads, and returns nothing without them", () => {
  assertEquals(modeAnnotationsOf(undefined), undefined);
  assertEquals(modeAnnotationsOf({ note: "hello" }), undefined);
  const scheduler = { "kube-router.io/service.scheduler": "lc" };
  assertEquals(modeAnnotationsOf({ ...scheduler, note: "hello" }), scheduler);
});

Deno.test("servicePortsFromService() hands annotations of a mode on", () => {
  const annotations = { "kube-relay.io/ipvs-scheduler": "mh" };
  const service = testService("web", { clusterIP: "10.96.0.1" }, { metadata: { annotations } });
  const { ports: [port] } = servicePortsFromService(service, { family: "IPv4" });
  assertEquals(port?.annotations, annotations);
});
