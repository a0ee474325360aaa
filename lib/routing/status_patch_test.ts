import { assertEquals } from "@std/assert";
import { parseIpAddress } from "../net/ip_address.ts";
import { loadBalancer } from "../../tests/support/builders/routed_objects.ts";
import { statusPatchOf } from "./status_patch.ts";

function patch(current: readonly string[], wanted: readonly string[] | undefined) {
  const assignment = wanted ? { addresses: wanted.map(parseIpAddress) } : {};
  const { metadata, ...service } = loadBalancer({ name: "a", addresses: current });
  const found = statusPatchOf(
    { ...service, metadata: { ...metadata, resourceVersion: "7" } },
    { ...assignment, refusals: [] },
  );
  assertEquals(found?.metadata.resourceVersion, found && "7");
  return found?.status.loadBalancer.ingress.map(({ ip }) => ip);
}

Deno.test("statusPatchOf() writes only what is different", () => {
  assertEquals(patch([], ["192.0.2.1"]), ["192.0.2.1"]);
  assertEquals(patch(["192.0.2.1"], ["192.0.2.1"]), undefined);
  assertEquals(patch(["2001:DB8::1", "192.0.2.1"], ["192.0.2.1", "2001:db8::1"]), undefined);
  assertEquals(patch(["192.0.2.1", "192.0.2.2"], ["192.0.2.1"]), ["192.0.2.1"]);
  assertEquals(patch(["192.0.2.1"], []), []);
  assertEquals(patch([], []), undefined);
});

Deno.test("statusPatchOf() leaves a status alone that has no assignment", () => {
  assertEquals(patch(["192.0.2.1"], undefined), undefined);
});
