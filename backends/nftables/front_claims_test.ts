import { assertEquals } from "@std/assert";
import { testServicePlan } from "../../tests/support/builders/service_plans.ts";
import type { EntryId } from "./claims.ts";
import { FrontClaims } from "./front_claims.ts";

const SHARED = "service-ips 192.0.2.1 . tcp . 80" as EntryId;

function plan(name: string) {
  const clusterIp = `172.30.0.${name.length}`;
  return testServicePlan({ name, clusterIp, externalIps: ["192.0.2.1"] });
}

const OLD = plan("old");
const NEWER = plan("newer");

Deno.test("FrontClaims gives a front to its next owner when the former one goes", () => {
  const fronts = new FrontClaims();
  for (const each of [OLD, NEWER]) fronts.set(each);
  assertEquals(fronts.ownerOf(SHARED), OLD.name);
  assertEquals(fronts.delete(OLD.key), OLD.name);
  assertEquals(fronts.ownerOf(SHARED), NEWER.name);
  assertEquals(fronts.delete(NEWER.key), NEWER.name);
  assertEquals([fronts.ownerOf(SHARED), [...fronts.ids()], [...fronts.keys]], [undefined, [], []]);
});

Deno.test("FrontClaims tells which fronts may have come or gone", () => {
  const fronts = new FrontClaims();
  fronts.set(OLD);
  assertEquals([...fronts.dirty], ["service-ips 172.30.0.3 . tcp . 80", SHARED]);
  fronts.settle();
  fronts.set(OLD);
  assertEquals(fronts.dirty.size, 0, "the same plan");
  assertEquals(fronts.delete(NEWER.key), undefined);
  assertEquals(fronts.dirty.size, 0);
});
