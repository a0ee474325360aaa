import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { ServerAddresses } from "./server_addresses.ts";

Deno.test("ServerAddresses.run() ends while a resolver does not answer", async () => {
  const addresses = new ServerAddresses({
    clock: new FakeClock(),
    lookUp: () => new Promise(() => {}),
  }, { server: "https://api.example.org:6443", onServer: () => {} });
  const abort = new AbortController();
  const running = addresses.run(abort.signal);
  abort.abort();
  await running;
});
