import { assertEquals, assertStringIncludes } from "@std/assert";
import { parseModeRequest } from "./mode_request.ts";

Deno.test("parseModeRequest() accepts the name of a mode, auto, and none", () => {
  for (const mode of ["iptables", "ipvs", "nftables", "userspace", "auto"] as const) {
    assertEquals(parseModeRequest(mode), { mode });
  }
  assertEquals(parseModeRequest(""), { mode: "default" });
});

Deno.test("parseModeRequest() refuses unknown modes, and names the nearest one", () => {
  for (const text of ["kernelspace", "USERSPACE", " userspace", "default"]) {
    assertEquals("problem" in parseModeRequest(text), true, text);
  }
  const result = parseModeRequest("iptable");
  assertStringIncludes("problem" in result ? result.problem : "", "did you mean 'iptables'?");
});
