import { assertEquals } from "@std/assert";
import {
  letPass,
  SEEN_MS,
  serviceYaml,
  withManifests,
} from "../../../tests/support/stages/manifest_harness.ts";

const WEB_1 = serviceYaml("web", "10.0.0.1");

Deno.test("run() selects the same objects as the selectors of the API", async () => {
  const labelled = (name: string, label: string) =>
    serviceYaml(name, "10.0.0.5").replace("metadata:", `metadata:\n  labels: {${label}: x}`);
  const slice = (name: string, label: string) =>
    "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\nmetadata:\n" +
    `  name: ${name}\n  labels: {kubernetes.io/service-name: web, ${label}: ""}\n`;
  const node = (name: string) => `apiVersion: v1\nkind: Node\nmetadata: {name: ${name}}\n`;
  const text = [
    WEB_1,
    labelled("foreign", "service.kubernetes.io/service-proxy-name"),
    serviceYaml("headless", "None"),
    slice("web-1", "a"),
    slice("web-2", "service.kubernetes.io/headless"),
    node("node-a"),
    node("node-b"),
  ].join("---\n");
  await withManifests({ "m/a.yaml": text }, async (started) => {
    const { files, harness } = started;
    assertEquals(harness.informers.take(), [
      "+EndpointSlice default/web-1",
      "+Node node-a",
      "+Service default/web",
    ]);
    files.write("m/a.yaml", labelled("web", "service.kubernetes.io/service-proxy-name"));
    await letPass(started, SEEN_MS);
    assertEquals(harness.informers.take(), [
      "-Service default/web",
      "-EndpointSlice default/web-1",
      "-Node node-a",
    ]);
  });
});
