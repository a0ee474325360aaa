import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { ServerAddresses } from "./object_source.ts";

Deno.test("ServerAddresses.run() ends while a resolver does not answer", async () => {
  const addresses = new ServerAddresses(
    new FakeClock(),
    "https://api.example.org:6443",
    () => {},
    () => new Promise(() => {}),
  );
  const abort = new AbortController();
  const running = addresses.run(abort.signal);
  abort.abort();
  await running;
});
