import { assertEquals } from "@std/assert";
import { featuresFound } from "./service_mode.ts";

const ALL = { comment: true, nfacct: false };

Deno.test("featuresFound() uses the found features, and the usual ones by default", () => {
  assertEquals(featuresFound(ALL, { features: { comment: false } }), {
    comment: false,
    nfacct: false,
  });
});

Deno.test("featuresFound() knows no feature that the mode has not", () => {
  const features = JSON.parse('{"__proto__": true, "other": true, "nfacct": true}');
  assertEquals(featuresFound(ALL, { features }), { comment: true, nfacct: true });
});
