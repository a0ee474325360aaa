import { assertEquals } from "@std/assert";
import type { ServicePortKey } from "./service_port_name.ts";
import { claimOrder } from "./claim_order.ts";

Deno.test("claimOrder() puts cluster IPs first, then the older Service, then the first by name", () => {
  const [OLD, NEW] = ["2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"];
  const claim = (key: string, createdAt: string | undefined, isClusterIp = false) => ({
    key,
    order: claimOrder(
      { key: key as ServicePortKey, ...(createdAt !== undefined && { createdAt }) },
      { isClusterIp },
    ),
  });
  const expected = [
    claim("ns/z/TCP", NEW, true),
    claim("ns/manifest/TCP", undefined),
    claim("ns/y/TCP", OLD),
    claim("ns/a/TCP", NEW),
    claim("ns/b/TCP", NEW),
  ];
  const sorted = expected.toReversed().sort((a, b) => a.order < b.order ? -1 : 1);
  assertEquals(sorted, expected);
});
