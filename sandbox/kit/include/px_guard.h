// Appended to a kernel's source: turns the exceptions of its functions into a PxFailure (sandbox/kit/cpp.py).
#include <exception>
struct PxFailure { u32 kind, missing, slot, value; char text[240]; };
#define PX_GUARDED(failure, call) \
    try { call; return 0; } \
    catch (const PxTimeout& e) { *failure = PxFailure{1, e.missing, e.slot, e.value, {0}}; } \
    catch (const PxBadSlot& e) { *failure = PxFailure{2, 0, e.slot, 0, {0}}; } \
    catch (const std::exception& e) { \
        *failure = PxFailure{3, 0, 0, 0, {0}}; \
        strncpy(failure->text, e.what(), 239); \
    } \
    catch (...) { *failure = PxFailure{3, 0, 0, 0, "an exception that is no std::exception"}; } \
    return 1;
#ifdef PX_TIMED
PX_EXPORT u32 px_take_waits(PxTimedWait** waits) {
    *waits = px_waits;
    const u32 made = px_waits_made;
    px_waits_made = 0;
    return made < PX_MOST_WAITS ? made : PX_MOST_WAITS;
}
#endif
