import { assertEquals } from "@std/assert";
import { testServicePlan } from "../../tests/support/builders/service_plans.ts";
import type { EntryId } from "./entry_id.ts";
import { CountedFrontends } from "./counted_frontends.ts";

const SHARED = "service-ips 192.0.2.1 . tcp . 80" as EntryId;

function plan(name: string) {
  const clusterIp = `172.30.0.${name.length}`;
  return testServicePlan({ name, clusterIp, externalIps: ["192.0.2.1"] });
}

const OLD = plan("old");
const NEWER = plan("newer");

Deno.test("CountedFrontends keeps a frontend that its next owner has when the former one is removed", () => {
  const frontends = new CountedFrontends();
  frontends.set(OLD);
  assertEquals(frontends.ownerOf(SHARED), OLD.name);
  frontends.set(NEWER);
  assertEquals(frontends.ownerOf(SHARED), NEWER.name);
  assertEquals(frontends.delete(OLD.key), OLD.name);
  assertEquals(frontends.ownerOf(SHARED), NEWER.name);
  assertEquals(frontends.delete(NEWER.key), NEWER.name);
  assertEquals([frontends.ownerOf(SHARED), [...frontends.ids()], [...frontends.keys]], [
    undefined,
    [],
    [],
  ]);
});

Deno.test("CountedFrontends has the frontends that may have been added or removed", () => {
  const frontends = new CountedFrontends();
  frontends.set(OLD);
  assertEquals([...frontends.dirty], ["service-ips 172.30.0.3 . tcp . 80", SHARED]);
  frontends.settle();
  frontends.set(OLD);
  assertEquals(frontends.dirty.size, 0, "the same plan");
  assertEquals(frontends.delete(NEWER.key), undefined);
  assertEquals(frontends.dirty.size, 0);
});
