import { assertEquals, assertNotEquals } from "@std/assert";
import {
  namespacedNameOf,
  serviceKey,
  servicePortKey,
  servicePortText,
} from "./service_port_name.ts";

const NAMED = { namespace: "ns1", name: "dns", port: "dns", protocol: "UDP" } as const;

Deno.test("servicePortText() is the field's form, without the protocol", () => {
  assertEquals(servicePortText(NAMED), "ns1/dns:dns");
  assertEquals(servicePortText({ ...NAMED, port: "" }), "ns1/dns");
});

Deno.test("servicePortKey() distinguishes TCP from UDP on one port name", () => {
  assertEquals(String(servicePortKey(NAMED)), "ns1/dns:dns/UDP");
  assertEquals(String(servicePortKey({ ...NAMED, port: "" })), "ns1/dns/UDP");
  assertNotEquals(servicePortKey(NAMED), servicePortKey({ ...NAMED, protocol: "TCP" }));
});

Deno.test("serviceKey() is namespace and name", () => {
  assertEquals(String(serviceKey(NAMED)), "ns1/dns");
});

Deno.test("namespacedNameOf() treats a missing namespace as 'default', as kubectl does", () => {
  assertEquals(namespacedNameOf({ metadata: { name: "web" } }), {
    namespace: "default",
    name: "web",
  });
  assertEquals(namespacedNameOf({ metadata: { name: "web", namespace: "ns1" } }), {
    namespace: "ns1",
    name: "web",
  });
});
