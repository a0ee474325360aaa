import { assertEquals, assertThrows } from "@std/assert";
import { parseFieldSelector, parseLabelSelector } from "./fake_selectors.ts";

function service(labels: Record<string, string>, clusterIP = "10.0.0.1") {
  const metadata = { name: "web", namespace: "shop", labels };
  return { apiVersion: "v1", kind: "Service", metadata, spec: { clusterIP } };
}

for (
  const [selector, labels, selected] of [
    [null, { a: "1" }, true],
    ["", {}, true],
    ["a", { a: "1" }, true],
    ["a", {}, false],
    ["!a", { a: "" }, false],
    ["!x.io/a", {}, true],
    ["a=1", { a: "1" }, true],
    ["a==1", { a: "2" }, false],
    ["a!=1", {}, true],
    ["a!=1", { a: "1" }, false],
    ["a=1,!b", { a: "1" }, true],
    ["a=1,!b", { a: "1", b: "" }, false],
  ] as const
) {
  Deno.test(`parseLabelSelector('${selector}') is ${selected} for ${JSON.stringify(labels)}`, () => {
    assertEquals(parseLabelSelector(selector)(service(labels)), selected);
  });
}

for (
  const [selector, clusterIp, selected] of [
    [null, "None", true],
    ["spec.clusterIP!=None", "None", false],
    ["spec.clusterIP!=None", "10.0.0.1", true],
    ["metadata.name=web", "None", true],
    ["metadata.name=web,metadata.namespace=other", "None", false],
  ] as const
) {
  Deno.test(`parseFieldSelector('${selector}') is ${selected} for ${clusterIp}`, () => {
    const parsed = parseFieldSelector(selector, { kind: "Service", clusterIpSelector: true });
    assertEquals(parsed(service({}, clusterIp)), selected);
  });
}

Deno.test("parseFieldSelector() knows spec.clusterIP for Services of newer servers alone", () => {
  for (
    const options of [
      { kind: "Service", clusterIpSelector: false },
      { kind: "Node", clusterIpSelector: true },
    ]
  ) {
    const parse = () => parseFieldSelector("spec.clusterIP!=None", options);
    assertThrows(parse, RangeError, "field label not supported: spec.clusterIP");
  }
});
