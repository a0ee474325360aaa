import { assertEquals } from "@std/assert";
import {
  type FakeHost,
  fakeHostChecks,
  missingFeature,
} from "../../../tests/support/fakes/fake_host_checks.ts";
import { findPolicyTool } from "./policy_settings.ts";

const NO_NFT: FakeHost = { probes: { nftables: [missingFeature("nft")] } };
Deno.test("findPolicyTool() never replaces a tool that was named, and says what it lacks", async () => {
  const hostChecks = fakeHostChecks(NO_NFT);
  assertEquals(await findPolicyTool(hostChecks, "nftables"), {
    tool: "nftables",
    refusal: "nft: no nft (get nft)",
  });
  assertEquals(await findPolicyTool(hostChecks, "iptables"), { tool: "iptables" });
});

Deno.test("findPolicyTool() does not try the tool of the mode that runs again", async () => {
  const asked: string[] = [];
  const hostChecks = fakeHostChecks({}, asked as never);
  await findPolicyTool(hostChecks, "auto", "nftables");
  assertEquals(asked, []);
  await findPolicyTool(hostChecks, "auto", "userspace");
  assertEquals(asked, ["nftables"]);
});
