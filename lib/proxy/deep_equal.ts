/**
 * Whether two values of plain data (primitives, arrays, objects without a custom prototype) are
 * equal. Identical objects are not traversed, so comparing mostly unchanged data is cheap.
 */
export function deepEqual(left: unknown, right: unknown): boolean {
  if (left === right) return true;
  if (typeof left !== "object" || typeof right !== "object") return false;
  if (left === null || right === null) return false;
  if (Array.isArray(left)) return Array.isArray(right) && equalItems(left, right);
  if (Array.isArray(right)) return false;
  const keys = Object.keys(left);
  if (keys.length !== Object.keys(right).length) return false;
  return keys.every((key) =>
    Object.hasOwn(right, key) && deepEqual(Reflect.get(left, key), Reflect.get(right, key))
  );
}

function equalItems(left: readonly unknown[], right: readonly unknown[]): boolean {
  return left.length === right.length &&
    left.every((item, index) => deepEqual(item, right[index]));
}
