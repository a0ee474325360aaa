import { assertEquals } from "@std/assert";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { POLICY_ACCESS } from "../../app/policy/policy_settings.ts";
import { examineAccess } from "./examine_api.ts";

Deno.test("examineAccess() waits 5 s for an API server that accepts and stays silent", async () => {
  using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const accepted = listener.accept();
  const file = await Deno.makeTempFile({ prefix: "kube-relay-access-" });
  try {
    const server = `http://127.0.0.1:${listener.addr.port}`;
    const kubeconfig = {
      clusters: [{ name: "c", cluster: { server } }],
      users: [{ name: "u", user: {} }],
      contexts: [{ name: "x", context: { cluster: "c", user: "u" } }],
      "current-context": "x",
    };
    await Deno.writeTextFile(file, JSON.stringify(kubeconfig));
    const clock = new FakeClock();
    const edges = {
      dependencies: { clock, commands: undefined, process: { env: () => undefined } },
      configuration: {
        proxy: { clientConnection: { kubeconfig: "" } },
        relay: { manifests: [] },
      },
      signal: new AbortController().signal,
    };
    const answer = examineAccess(edges as never, {
      needed: POLICY_ACCESS,
      ...{ flag: "policy-kubeconfig", given: file, id: "policy-access", summary: "" },
    });
    // An answer before there was a connection is the fault of the stage.
    const [connection] = await Promise.race([
      accepted.then((each) => [each]),
      answer.then(() => []),
    ]);
    using _connection = connection;
    await clock.advance(5_000);
    assertEquals((await answer).map(({ evidence }) => evidence), [[
      `${file}: no answer within 5 s`,
    ]]);
  } finally {
    await Deno.remove(file);
  }
});
