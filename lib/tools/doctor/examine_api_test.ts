import { assertEquals } from "@std/assert";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { POLICY_ACCESS } from "../../app/policy/policy_settings.ts";
import { examineAccess } from "./examine_api.ts";

Deno.test("examineAccess() waits 5 s for an API server that accepts and stays silent", async () => {
  using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const accepted = listener.accept();
  const clock = new FakeClock();
  const edges = {
    dependencies: { clock, commands: undefined, process: { env: () => undefined } },
    configuration: {
      relay: { manifests: [], master: `http://127.0.0.1:${listener.addr.port}` },
    },
    signal: new AbortController().signal,
  };
  const answer = examineAccess(edges as never, {
    needed: POLICY_ACCESS,
    ...{ kubeconfig: "", flag: "policy-kubeconfig", given: "/k", id: "policy-access", summary: "" },
  });
  using _connection = await accepted;
  await clock.advance(5_000);
  assertEquals((await answer).map(({ evidence }) => evidence), [["/k: no answer within 5 s"]]);
});
