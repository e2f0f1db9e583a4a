/* The errors of Towline as Open MPI knows them. */
#include "btl_towline.h"

int btl_towline_error(int code)
{
    switch (code) {
    case TOWLINE_SUCCESS:
        return OPAL_SUCCESS;
    case TOWLINE_ERR_BUSY:
    case TOWLINE_ERR_NO_MEMORY:
        return OPAL_ERR_OUT_OF_RESOURCE;
    case TOWLINE_ERR_NOT_AVAILABLE:
        return OPAL_ERR_NOT_AVAILABLE;
    case TOWLINE_ERR_PEER_FAILED:
    case TOWLINE_ERR_PEER_FINISHED:
    case TOWLINE_ERR_CANCELLED:
        return OPAL_ERR_UNREACH;
    case TOWLINE_ERR_ARGUMENT:
    case TOWLINE_ERR_RANGE:
    case TOWLINE_ERR_TAG:
        return OPAL_ERR_BAD_PARAM;
    default:
        return OPAL_ERROR;
    }
}
