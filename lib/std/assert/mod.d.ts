// The part of `@std/assert` that kube-relay's tests use.
// deno-lint-ignore-file no-explicit-any
type ErrorClass<E extends Error> = abstract new (...args: any[]) => E;

export declare class AssertionError extends Error {}
export declare function assert(value: unknown, message?: string): asserts value;
export declare function assertAlmostEquals(
  actual: number,
  expected: number,
  tolerance?: number,
  message?: string,
): void;
export declare function assertEquals<T>(actual: T, expected: T, message?: string): void;
export declare function assertExists<T>(
  value: T,
  message?: string,
): asserts value is NonNullable<T>;
export declare function assertInstanceOf<T>(
  actual: unknown,
  type: abstract new (...args: any[]) => T,
  message?: string,
): asserts actual is T;
export declare function assertMatch(actual: string, expected: RegExp, message?: string): void;
export declare function assertNotEquals<T>(actual: T, expected: T, message?: string): void;
export declare function assertObjectMatch(
  actual: object,
  expected: object,
  message?: string,
): void;
export declare function assertRejects<E extends Error = Error>(
  action: () => PromiseLike<unknown>,
  errorClass?: ErrorClass<E>,
  messageIncludes?: string,
  message?: string,
): Promise<E>;
export declare function assertStrictEquals<T>(actual: unknown, expected: T, message?: string): void;
export declare function assertStringIncludes(
  actual: string,
  expected: string,
  message?: string,
): void;
export declare function assertThrows<E extends Error = Error>(
  action: () => unknown,
  errorClass?: ErrorClass<E>,
  messageIncludes?: string,
  message?: string,
): E;
export declare function equal(left: unknown, right: unknown): boolean;
export declare function fail(message?: string): never;
